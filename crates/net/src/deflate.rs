//! Compression of WebSocket messages: the extension permessage-deflate, RFC 7692. `flate2`
//! compresses.

use std::io;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The name of the extension.
const NAME: &str = "permessage-deflate";
/// The window sizes that the extension knows, and the smallest one that zlib can compress with.
const WINDOW_BITS: std::ops::RangeInclusive<u8> = 8..=15;
const MIN_COMPRESSING: u8 = 9;
/// What ends each flushed block, and is left out of a message: section 7.2.1.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// How the messages of a WebSocket are compressed, if the peer agrees: permessage-deflate, RFC 7692. See
/// [`Options::deflate`](crate::Options::deflate).
///
/// A connection that has sent a compressed message takes some 480 KiB more memory (270 KiB with the
/// smallest window), and one that has received one some 50 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deflate {
    /// From 1 (fast) to 9 (small). Default: 1, because small messages gain little from more.
    pub level: u32,
    /// Shorter messages are sent uncompressed. In bytes. Default: 64.
    pub min_len: usize,
    /// How far back a sent message may refer, as the binary logarithm of a number of bytes: 9 to 15.
    /// Default: 15, which is 32 KiB.
    pub send_window_bits: u8,
    /// As `send_window_bits`, for received messages. A client that does not support the parameter
    /// keeps its own window. Default: 15.
    pub receive_window_bits: u8,
    /// Whether a sent message may refer to earlier ones. It makes similar messages much shorter.
    /// Default: true.
    pub send_context: bool,
    /// Whether a received message may refer to earlier ones. Default: true.
    pub receive_context: bool,
}

impl Default for Deflate {
    fn default() -> Deflate {
        Deflate {
            level: 1,
            min_len: 64,
            send_window_bits: 15,
            receive_window_bits: 15,
            send_context: true,
            receive_context: true,
        }
    }
}

impl Deflate {
    /// What is wrong with these values, if something is.
    pub(crate) fn error(&self) -> Option<String> {
        if !(1..=9).contains(&self.level) {
            return Some(format!("Deflate::level is {}: 1 to 9 are allowed", self.level));
        }
        let bits = [("send_window_bits", self.send_window_bits), ("receive_window_bits", self.receive_window_bits)];
        let (name, bits) = bits.into_iter().find(|(_, bits)| !(MIN_COMPRESSING..=15).contains(bits))?;
        Some(format!("Deflate::{name} is {bits}: 9 to 15 are allowed"))
    }

    /// The offer of a client: the value of `Sec-WebSocket-Extensions`.
    pub(crate) fn offer(&self) -> String {
        let parameters = Parameters {
            server_no_context_takeover: !self.receive_context,
            client_no_context_takeover: !self.send_context,
            server_max_window_bits: (self.receive_window_bits < 15).then_some(self.receive_window_bits),
            client_max_window_bits: Some((self.send_window_bits < 15).then_some(self.send_window_bits)),
        };
        parameters.to_string()
    }

    /// Chooses among the extensions that a client offers. Returns what was agreed upon, and the
    /// value of the response's `Sec-WebSocket-Extensions`.
    pub(crate) fn accept<'a>(&self, offers: impl Iterator<Item = &'a str>) -> Option<(Agreed, String)> {
        let offer = offers.filter_map(|offer| Parameters::parse(offer).ok()).next()?;
        let limit = |ours: u8, theirs: Option<u8>| theirs.map_or(ours, |theirs| theirs.min(ours));
        let send_bits = limit(self.send_window_bits, offer.server_max_window_bits);
        // Without this parameter a server cannot make the client use a smaller window.
        let receive_bits = match offer.client_max_window_bits {
            Some(theirs) => limit(self.receive_window_bits, theirs),
            None => 15,
        };
        let response = Parameters {
            server_no_context_takeover: !self.send_context || offer.server_no_context_takeover,
            client_no_context_takeover: !self.receive_context || offer.client_no_context_takeover,
            server_max_window_bits: (send_bits < 15).then_some(send_bits),
            client_max_window_bits: (receive_bits < 15).then_some(Some(receive_bits)),
        };
        let agreed = self.agreed(
            Direction { window_bits: send_bits, keeps_context: !response.server_no_context_takeover },
            Direction { window_bits: receive_bits, keeps_context: !response.client_no_context_takeover },
        );
        Some((agreed, response.to_string()))
    }

    /// Checks the extensions that a server chose, in response to [`Deflate::offer`].
    ///
    /// # Errors
    ///
    /// What is wrong with the response.
    pub(crate) fn check<'a>(&self, mut chosen: impl Iterator<Item = &'a str>) -> Result<Option<Agreed>, String> {
        let Some(first) = chosen.next() else { return Ok(None) };
        if chosen.next().is_some() {
            return Err("the server chose more than one extension".to_owned());
        }
        let response = Parameters::parse(first)?;
        if !self.receive_context && !response.server_no_context_takeover {
            return Err("the server did not accept server_no_context_takeover".to_owned());
        }
        let receive_bits = response.server_max_window_bits.unwrap_or(15);
        if receive_bits > self.receive_window_bits {
            return Err(format!("the server did not accept server_max_window_bits={}", self.receive_window_bits));
        }
        let send_bits = match response.client_max_window_bits {
            Some(None) => return Err("the server chose client_max_window_bits without a value".to_owned()),
            Some(Some(bits)) if bits > self.send_window_bits => {
                return Err(format!("the server chose client_max_window_bits={bits}, which was not offered"));
            }
            Some(Some(bits)) => bits,
            None => self.send_window_bits,
        };
        let keeps_context = self.send_context && !response.client_no_context_takeover;
        Ok(Some(self.agreed(
            Direction { window_bits: send_bits, keeps_context },
            Direction { window_bits: receive_bits, keeps_context: !response.server_no_context_takeover },
        )))
    }

    fn agreed(&self, send: Direction, receive: Direction) -> Agreed {
        Agreed { send, receive, level: self.level, min_len: self.min_len }
    }
}

/// The parameters of an offer or a response: section 7.1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Parameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// In an offer it may have no value.
    client_max_window_bits: Option<Option<u8>>,
}

impl Parameters {
    /// Parses one item of a list of extensions.
    ///
    /// # Errors
    ///
    /// If it is another extension, or has an unknown, repeated or invalid parameter.
    fn parse(extension: &str) -> Result<Parameters, String> {
        let mut parts = extension.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        if !name.eq_ignore_ascii_case(NAME) {
            return Err(format!("the extension {name:?} is unknown"));
        }
        let (mut parameters, mut seen) = (Parameters::default(), Vec::new());
        for part in parts {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
                None => (part, None),
            };
            if seen.contains(&name) || parameters.set(name, value).is_none() {
                return Err(format!("{NAME}: the parameter {part:?} is unknown, repeated or invalid"));
            }
            seen.push(name);
        }
        Ok(parameters)
    }

    /// Sets one parameter. Returns `None` if it is invalid.
    fn set(&mut self, name: &str, value: Option<&str>) -> Option<()> {
        match (name, value) {
            ("server_no_context_takeover", None) => self.server_no_context_takeover = true,
            ("client_no_context_takeover", None) => self.client_no_context_takeover = true,
            ("server_max_window_bits", Some(value)) => self.server_max_window_bits = Some(window_bits(value)?),
            ("client_max_window_bits", None) => self.client_max_window_bits = Some(None),
            ("client_max_window_bits", Some(value)) => self.client_max_window_bits = Some(Some(window_bits(value)?)),
            _ => return None,
        }
        Some(())
    }
}

impl std::fmt::Display for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NAME)?;
        if self.server_no_context_takeover {
            f.write_str("; server_no_context_takeover")?;
        }
        if self.client_no_context_takeover {
            f.write_str("; client_no_context_takeover")?;
        }
        if let Some(bits) = self.server_max_window_bits {
            write!(f, "; server_max_window_bits={bits}")?;
        }
        match self.client_max_window_bits {
            Some(Some(bits)) => write!(f, "; client_max_window_bits={bits}"),
            Some(None) => f.write_str("; client_max_window_bits"),
            None => Ok(()),
        }
    }
}

/// A window size: a decimal number without leading zeros.
fn window_bits(value: &str) -> Option<u8> {
    let bits: u8 = value.parse().ok()?;
    (WINDOW_BITS.contains(&bits) && value == bits.to_string()).then_some(bits)
}

/// The compression of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Direction {
    window_bits: u8,
    keeps_context: bool,
}

/// What both sides of a WebSocket agreed upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agreed {
    send: Direction,
    receive: Direction,
    level: u32,
    min_len: usize,
}

impl Agreed {
    /// The compressor of the sent messages. `None` if the window that the peer allows is smaller
    /// than zlib's: then no message is compressed, which the peer accepts.
    pub(crate) fn compressor(&self) -> Option<Compressor> {
        (self.send.window_bits >= MIN_COMPRESSING).then(|| Compressor {
            direction: self.send,
            level: Compression::new(self.level),
            // An empty message has nothing to compress.
            min_len: self.min_len.max(1),
            state: None,
        })
    }

    /// The decompressor of the received messages.
    pub(crate) fn decompressor(&self) -> Decompressor {
        Decompressor { direction: self.receive, state: None }
    }
}

/// Compresses messages. Its memory is allocated with the first one.
#[derive(Debug)]
pub(crate) struct Compressor {
    direction: Direction,
    level: Compression,
    min_len: usize,
    state: Option<Compress>,
}

impl Compressor {
    /// Whether a message of this length is to be compressed.
    #[inline]
    pub(crate) fn suits(&self, len: usize) -> bool {
        len >= self.min_len
    }

    /// Compresses a message. The result has to be sent, because later ones may refer to it.
    ///
    /// # Errors
    ///
    /// If zlib fails, which it does not with valid parameters.
    pub(crate) fn compress(&mut self, message: &[u8]) -> io::Result<Vec<u8>> {
        let Direction { window_bits, keeps_context } = self.direction;
        let level = self.level;
        let state = self.state.get_or_insert_with(|| Compress::new_with_window_bits(level, false, window_bits));
        let (mut rest, mut compressed) = (message, Vec::new());
        loop {
            compressed.reserve(rest.len() / 2 + 64);
            let before = state.total_in();
            state.compress_vec(rest, &mut compressed, FlushCompress::Sync)?;
            rest = &rest[(state.total_in() - before) as usize..];
            // With space left over, zlib has written everything.
            if rest.is_empty() && compressed.len() < compressed.capacity() {
                break;
            }
        }
        if !compressed.ends_with(&TAIL) {
            return Err(io::Error::other("zlib did not end a block"));
        }
        compressed.truncate(compressed.len() - TAIL.len());
        if !keeps_context {
            state.reset();
        }
        Ok(compressed)
    }
}

/// Why a message cannot be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecompressError {
    /// It would be longer than the limit.
    TooLong,
    Invalid,
}

/// Decompresses messages. Its memory is allocated with the first one.
#[derive(Debug)]
pub(crate) struct Decompressor {
    direction: Direction,
    state: Option<Decompress>,
}

impl Decompressor {
    /// Appends the decompressed form of the next part of a message. `message` never gets longer
    /// than `limit` and one byte.
    ///
    /// # Errors
    ///
    /// If the message exceeds the limit or is invalid. The decompressor must not be used any more
    /// then.
    pub(crate) fn decompress(
        &mut self,
        part: &[u8],
        message: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), DecompressError> {
        let bits = self.direction.window_bits.max(MIN_COMPRESSING);
        let state = self.state.get_or_insert_with(|| Decompress::new_with_window_bits(false, bits));
        let mut rest = part;
        loop {
            let len = message.len();
            // One byte beyond the limit shows that there is more.
            let space = (limit + 1 - len).min((4 * rest.len()).clamp(256, 64 << 10));
            message.resize(len + space, 0);
            let before = (state.total_in(), state.total_out());
            let status = state.decompress(rest, &mut message[len..], FlushDecompress::Sync);
            let (consumed, produced) = (state.total_in() - before.0, (state.total_out() - before.1) as usize);
            message.truncate(len + produced);
            rest = &rest[consumed as usize..];
            if message.len() > limit {
                return Err(DecompressError::TooLong);
            }
            match status {
                // A message may contain the end of a DEFLATE stream: section 7.2.3.5. What follows is a
                // new stream; a reference to what came before is an error then.
                Ok(Status::StreamEnd) => state.reset(false),
                Ok(_) if consumed == 0 && produced == 0 && !rest.is_empty() => return Err(DecompressError::Invalid),
                Ok(_) => {}
                Err(_) => return Err(DecompressError::Invalid),
            }
            if rest.is_empty() && produced < space {
                return Ok(());
            }
        }
    }

    /// Ends a message, and appends what is left of it.
    ///
    /// # Errors
    ///
    /// As [`Decompressor::decompress`].
    pub(crate) fn finish(&mut self, message: &mut Vec<u8>, limit: usize) -> Result<(), DecompressError> {
        self.decompress(&TAIL, message, limit)?;
        if let Some(state) = &mut self.state
            && !self.direction.keeps_context
        {
            state.reset(false);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides agree. Returns what the client and the server agreed upon, and the response.
    fn agree(client: &Deflate, server: &Deflate) -> (Agreed, Agreed, String) {
        let (at_server, response) = server.accept([&*client.offer()].into_iter()).unwrap();
        let at_client = client.check([&*response].into_iter()).unwrap().unwrap();
        assert_eq!((at_client.send, at_client.receive), (at_server.receive, at_server.send), "{response}");
        (at_client, at_server, response)
    }

    fn message(seed: usize, len: usize) -> Vec<u8> {
        let words = ["one", "two", "three", "five", "eight"];
        (0..).flat_map(|i| format!("{} {}, ", words[(i * i + seed) % 5], i % 7 + seed).into_bytes()).take(len).collect()
    }

    fn exchange(from: &Agreed, to: &Agreed) {
        let (mut compressor, mut decompressor) = (from.compressor().unwrap(), to.decompressor());
        for (seed, len) in [1, 100, 100, 1000, 70_000, 1 << 20, 100].into_iter().enumerate() {
            let (sent, mut received) = (message(seed, len), Vec::new());
            let compressed = compressor.compress(&sent).unwrap();
            for part in compressed.chunks(1 + seed * 1000) {
                decompressor.decompress(part, &mut received, len).unwrap();
            }
            decompressor.finish(&mut received, len).unwrap();
            assert!(received == sent, "a message of {len} bytes");
        }
    }

    #[test]
    fn all_parameters_are_negotiated_and_messages_arrive_under_them() {
        let choices = |deflate: Deflate, bits: [u8; 2], context: [bool; 2]| Deflate {
            send_window_bits: bits[0],
            receive_window_bits: bits[1],
            send_context: context[0],
            receive_context: context[1],
            ..deflate
        };
        let usual = Deflate::default();
        for (bits, context) in [
            ([15, 15], [true, true]),
            ([9, 12], [true, true]),
            ([12, 9], [false, true]),
            ([15, 10], [true, false]),
            ([10, 15], [false, false]),
        ] {
            let special = choices(usual.clone(), bits, context);
            for (client, server) in [(&usual, &special), (&special, &usual), (&special, &special)] {
                let (at_client, at_server, _) = agree(client, server);
                exchange(&at_client, &at_server);
                exchange(&at_server, &at_client);
            }
        }
        assert_eq!(agree(&usual, &usual).2, "permessage-deflate");
        let client = choices(usual.clone(), [12, 9], [false, false]);
        let answer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                      server_max_window_bits=9; client_max_window_bits=12";
        assert_eq!(agree(&client, &usual).2, answer);
    }

    #[test]
    fn a_server_declines_invalid_offers_and_takes_the_next_one() {
        let server = Deflate { receive_window_bits: 10, ..Deflate::default() };
        for (offers, response) in [
            // Chromium's.
            (
                &["permessage-deflate; client_max_window_bits"][..],
                Some("permessage-deflate; client_max_window_bits=10"),
            ),
            // A client that cannot choose its window.
            (&["permessage-deflate"], Some("permessage-deflate")),
            (&["x-webkit-deflate-frame", "Permessage-Deflate"], Some("permessage-deflate")),
            (&["permessage-deflate; server_max_window_bits"], None),
            (&["permessage-deflate; server_max_window_bits=7"], None),
            (&["permessage-deflate; server_max_window_bits=16"], None),
            (&["permessage-deflate; server_max_window_bits=010"], None),
            (&["permessage-deflate; server_no_context_takeover=1"], None),
            (&["permessage-deflate; client_no_context_takeover; client_no_context_takeover"], None),
            (
                &["permessage-deflate; other", "permessage-deflate; server_max_window_bits=\"9\""],
                Some("permessage-deflate; server_max_window_bits=9"),
            ),
        ] {
            let accepted = server.accept(offers.iter().copied()).map(|(_, response)| response);
            assert_eq!(accepted.as_deref(), response, "{offers:?}");
        }
    }

    #[test]
    fn a_client_refuses_a_response_that_it_did_not_offer() {
        let client =
            Deflate { send_window_bits: 12, receive_window_bits: 12, receive_context: false, ..Deflate::default() };
        for (response, error) in [
            ("permessage-bzip2", "is unknown"),
            ("permessage-deflate; server_max_window_bits=12", "did not accept server_no_context_takeover"),
            ("permessage-deflate; server_no_context_takeover", "did not accept server_max_window_bits=12"),
            ("permessage-deflate; server_no_context_takeover; server_max_window_bits=13", "server_max_window_bits=12"),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=12; client_max_window_bits=13",
                "client_max_window_bits=13, which was not offered",
            ),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=12; client_max_window_bits",
                "without a value",
            ),
            ("permessage-deflate; client_max_window_bits=8x", "unknown, repeated or invalid"),
        ] {
            let refused = client.check([response].into_iter()).unwrap_err();
            assert!(refused.contains(error), "{response}: {refused}");
        }
        assert!(client.check(["permessage-deflate", "permessage-deflate"].into_iter()).is_err());
        assert_eq!(client.check([].into_iter()), Ok(None));
    }

    #[test]
    fn with_a_window_of_256_bytes_nothing_is_compressed() {
        let (agreed, response) =
            Deflate::default().accept(["permessage-deflate; server_max_window_bits=8"].into_iter()).unwrap();
        assert_eq!(response, "permessage-deflate; server_max_window_bits=8");
        assert!(agreed.compressor().is_none());
    }

    fn decompressed(compressed: &[&[u8]], limit: usize) -> Result<Vec<Vec<u8>>, DecompressError> {
        let (agreed, _) = Deflate::default().accept([NAME].into_iter()).unwrap();
        let mut decompressor = agreed.decompressor();
        let messages = compressed.iter().map(|compressed| {
            let mut message = Vec::new();
            decompressor.decompress(compressed, &mut message, limit)?;
            decompressor.finish(&mut message, limit).map(|()| message)
        });
        messages.collect()
    }

    #[test]
    fn the_rfcs_examples() {
        let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        // Section 7.2.3.2: the second message refers to the first one.
        let again = [0xf2, 0x00, 0x11, 0x00, 0x00];
        assert_eq!(decompressed(&[&hello, &again], 5).unwrap(), [b"Hello", b"Hello"]);
        // A block without compression, one with BFINAL set, and two blocks.
        let stored = [0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00];
        let is_final = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
        let blocks = [0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00];
        for compressed in [&stored[..], &is_final, &blocks] {
            assert_eq!(decompressed(&[compressed, &hello], 5).unwrap(), [b"Hello", b"Hello"]);
        }
        assert_eq!(decompressed(&[&[0]], 0).unwrap(), [b""]);
    }

    #[test]
    fn a_message_is_never_inflated_beyond_its_limit() {
        let (agreed, _) = Deflate { level: 9, ..Deflate::default() }.accept([NAME].into_iter()).unwrap();
        let bomb = agreed.compressor().unwrap().compress(&vec![0; 64 << 20]).unwrap();
        assert!(bomb.len() < 100 << 10, "{}", bomb.len());
        let mut message = Vec::new();
        let error = agreed.decompressor().decompress(&bomb, &mut message, 100_000);
        assert_eq!(error, Err(DecompressError::TooLong));
        assert!(message.capacity() <= 300_000, "{}", message.capacity());
        assert_eq!(decompressed(&[&bomb], 64 << 20).unwrap()[0].len(), 64 << 20);
        assert_eq!(decompressed(&[&bomb], (64 << 20) - 1), Err(DecompressError::TooLong));
    }

    #[test]
    fn invalid_data_is_an_error() {
        for bad in [&[0xff][..], &[0x07], &[0xf2, 0x00, 0x11, 0x00, 0x00], b"not compressed"] {
            assert_eq!(decompressed(&[bad], 1000), Err(DecompressError::Invalid), "{bad:?}");
        }
    }

    #[test]
    fn invalid_values_are_named() {
        let error = |deflate: Deflate| deflate.error().unwrap_or_default();
        assert_eq!(error(Deflate::default()), "");
        assert!(error(Deflate { level: 0, ..Deflate::default() }).contains("level is 0"));
        assert!(error(Deflate { send_window_bits: 8, ..Deflate::default() }).contains("send_window_bits is 8"));
        assert!(error(Deflate { receive_window_bits: 16, ..Deflate::default() }).contains("receive_window_bits is 16"));
    }
}
