//! A WebSocket over TCP, optimised for speed: hand-written frames after tungstenite's
//! handshake, see [`super::frames`]. Each message is one binary frame, which the client masks with
//! a new key. Any other frame is an error.

use std::io;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Spec, Transport, Verifier};

use super::frames::{FrameReader, FrameWriter, RecvEnd, SendEnd, Socket, ends};
use super::tcp_connection::connected;
use super::ws_basic::{handshake, handshakes};

/// The first byte of a frame that contains a whole binary message.
const BINARY: u8 = 0x82;
/// The bit in the length byte that marks a masked frame.
const MASKED: u8 = 0x80;
/// The length of a masking key in bytes.
const KEY: usize = 4;
/// The longest frame header in bytes: two bytes, the extended length, and the key.
const LONGEST_HEAD: usize = 2 + 8 + KEY;
/// How many random bytes are requested at once.
const POOL: usize = 4096;

/// `network/ws-tuned`.
pub(super) struct WsTuned;

impl Mechanism for WsTuned {
    fn spec(&self) -> Spec {
        Spec::new("network/ws-tuned")
            .implementation(
                "a WebSocket over TCP, TCP_NODELAY: frames by hand, masked by the client, many by one send and one recv",
            )
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::SameThread])
            .waits(&[Wait::Block, Wait::Adaptive])
            .between_hosts(true)
            .tier(Tier::StandardAllCells)
    }
}

impl Transport<Raw> for WsTuned {
    type Tx = SendEnd<Written, Socket>;
    type Rx = RecvEnd<Parsed, Socket>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        // No frame is sent before every end is open, so the handshake reads no frame.
        let sockets = match role {
            Role::All => handshakes()?.map(|socket| socket.into_inner().into()),
            _ => {
                let stream = connected(role, rendezvous)?;
                handshake(role, stream.try_clone()?)?;
                [stream.try_clone()?.into(), stream.into()]
            }
        };
        let (client, len) = (!matches!(role, Role::Consumer(_)), case.payload.len());
        // A party that runs all roles sends as the client and receives as the server.
        let masked = !client || role == Role::All;
        Ok(ends(Written::new(len, client), Parsed { len, masked }, sockets, case, role))
    }
}

/// The frames that an end sends, RFC 6455, section 5.2.
pub(super) struct Written {
    len: usize,
    /// The frame header up to the key.
    head: Vec<u8>,
    /// The client's masking keys.
    keys: Option<Keys>,
}

impl Written {
    fn new(len: usize, client: bool) -> Written {
        let masked = if client { MASKED } else { 0 };
        let head = match len {
            0..126 => vec![BINARY, masked | len as u8],
            126..=0xffff => [&[BINARY, masked | 126][..], &(len as u16).to_be_bytes()].concat(),
            _ => [&[BINARY, masked | 127][..], &(len as u64).to_be_bytes()].concat(),
        };
        Written { len, head, keys: client.then(Keys::default) }
    }
}

impl FrameWriter for Written {
    #[inline(always)]
    fn frame(&self) -> usize {
        self.head.len() + if self.keys.is_some() { KEY } else { 0 } + self.len
    }

    #[inline(always)]
    fn write(&mut self, place: &mut [u8], source: &mut Generator) -> io::Result<()> {
        let (head, rest) = place.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        let Some(keys) = &mut self.keys else {
            source.fill(rest);
            return Ok(());
        };
        let (place, message) = rest.split_at_mut(KEY);
        let key = keys.next()?;
        place.copy_from_slice(&key);
        source.fill(message);
        mask(message, key);
        Ok(())
    }
}

/// The frames that an end receives.
pub(super) struct Parsed {
    /// The length of a message in bytes.
    len: usize,
    /// Whether the frames are from a client.
    masked: bool,
}

impl Parsed {
    /// Parses the first frame's header. Returns the lengths of header and message, or `None` if the
    /// header is incomplete.
    #[inline(always)]
    fn head(&self, buffered: &[u8]) -> io::Result<Option<(usize, usize)>> {
        let [first, second, rest @ ..] = buffered else { return Ok(None) };
        if *first != BINARY || (second & MASKED != 0) != self.masked {
            return Err(io::Error::other(format!("a frame that begins with {first:#04x} {second:#04x}")));
        }
        let (length, extended) = match second & !MASKED {
            126 => (rest.first_chunk().map(|length| u64::from(u16::from_be_bytes(*length))), 2),
            127 => (rest.first_chunk().map(|length| u64::from_be_bytes(*length)), 8),
            length => (Some(u64::from(length)), 0),
        };
        match length {
            Some(length) if length > self.len as u64 => Err(io::Error::other(format!("a message of {length} bytes"))),
            Some(length) => Ok(Some((2 + extended + if self.masked { KEY } else { 0 }, length as usize))),
            None => Ok(None),
        }
    }
}

impl FrameReader for Parsed {
    #[inline(always)]
    fn frame(&self) -> usize {
        LONGEST_HEAD + self.len
    }

    #[inline(always)]
    fn read(&mut self, buffered: &mut [u8], verifier: &mut Verifier) -> io::Result<Option<usize>> {
        let Some((head, length)) = self.head(buffered)? else { return Ok(None) };
        let Some(frame) = buffered.get_mut(..head + length) else { return Ok(None) };
        let (head, message) = frame.split_at_mut(head);
        if self.masked
            && let Some(key) = head.last_chunk()
        {
            mask(message, *key);
        }
        verifier.bytes(message);
        Ok(Some(frame.len()))
    }
}

/// Masks or unmasks a message, eight bytes at a time, which the compiler vectorises.
#[inline(always)]
fn mask(message: &mut [u8], [a, b, c, d]: [u8; KEY]) {
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = message.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip([a, b, c, d, a, b, c]) {
        *byte ^= key;
    }
}

/// Unpredictable masking keys, as the RFC requires.
#[derive(Default)]
struct Keys {
    pool: Vec<u8>,
    position: usize,
}

impl Keys {
    #[inline(always)]
    fn next(&mut self) -> io::Result<[u8; KEY]> {
        loop {
            if let Some(key) = self.pool[self.position..].first_chunk() {
                self.position += KEY;
                return Ok(*key);
            }
            self.refill()?;
        }
    }

    #[cold]
    fn refill(&mut self) -> io::Result<()> {
        self.pool.resize(POOL, 0);
        self.position = 0;
        getrandom::fill(&mut self.pool).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tungstenite::protocol::Role;
    use tungstenite::{Message, WebSocket};

    use super::*;

    const LENGTHS: [usize; 9] = [8, 9, 15, 125, 126, 127, 300, 65_535, 65_536];

    fn written(len: usize, client: bool) -> Vec<u8> {
        let mut writes = Written::new(len, client);
        let mut frame = vec![0; writes.frame()];
        writes.write(&mut frame, &mut Generator::new(1, 0, len)).unwrap();
        frame
    }

    fn assert_bytes(len: usize, bytes: &[u8]) {
        let mut expected = vec![0; len];
        Generator::new(1, 0, len).fill(&mut expected);
        assert!(bytes == expected, "{len} bytes");
    }

    #[test]
    fn a_frame_is_parsed_only_when_complete() {
        for (len, client) in LENGTHS.into_iter().flat_map(|len| [(len, true), (len, false)]) {
            let mut frame = written(len, client);
            let (whole, mut parsed) = (frame.len(), Parsed { len, masked: client });
            let mut verifier = Verifier::new(1, 1, len);
            for come in (0..20).chain([len, whole - 1]).filter(|come| *come < whole) {
                assert_eq!(parsed.read(&mut frame[..come], &mut verifier).unwrap(), None, "{come} of {whole} bytes");
            }
            assert_eq!((parsed.read(&mut frame, &mut verifier).unwrap(), verifier.received()), (Some(whole), 1));
            assert_bytes(len, &frame[whole - len..]);
        }
    }

    #[test]
    fn other_frames_are_rejected() {
        let mut parsed = Parsed { len: 64, masked: true };
        // A ping, a message that is not masked, and one that is too long.
        for mut frame in [[0x89, 0x80], [0x82, 0x40], [0x82, 0x80 | 65]] {
            assert!(parsed.read(&mut frame, &mut Verifier::new(1, 1, 64)).is_err(), "{frame:x?}");
        }
    }

    #[test]
    fn frames_are_compatible_with_tungstenite() {
        for len in LENGTHS {
            for (role, client) in [(Role::Server, true), (Role::Client, false)] {
                let mut socket = WebSocket::from_raw_socket(Cursor::new(written(len, client)), role, None);
                assert_bytes(len, &socket.read().unwrap().into_data());

                let mut socket = WebSocket::from_raw_socket(Cursor::new(Vec::new()), role, None);
                let mut message = vec![0; len];
                Generator::new(1, 0, len).fill(&mut message);
                socket.send(Message::binary(message)).unwrap();
                let frame = socket.get_mut().get_mut();
                let mut verifier = Verifier::new(1, 1, len);
                let read = Parsed { len, masked: !client }.read(frame, &mut verifier).unwrap();
                assert_eq!((read, verifier.received()), (Some(frame.len()), 1));
                assert_bytes(len, &frame[frame.len() - len..]);
            }
        }
    }
}
