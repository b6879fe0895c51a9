//! Fuzz targets: one function for each parser of untrusted input. It panics if an invariant does
//! not hold.
//!
//! The tests call them with some thousand inputs; `fuzz/` searches for worse ones.
//!
//! Where an input is cut into pieces, its first byte modulo 16 says how many piece sizes follow. So
//! corpus files may start with a digit.

use crate::Address;
use crate::codec::length::{LengthDecoder, header};
use crate::codec::pieces::{Found, read};
use crate::codec::websocket::{self, Expected, Opcode, Opening, Side, Utf8, WebSocketDecoder, mask};
use crate::codec::{Decoder, Fault, Kind, Violation};
use crate::proxy::{Tunnel, exchange};
use crate::transport::Options;

/// Small enough that inputs exceed it.
const LIMIT: usize = 1000;
const PARTS: usize = 20;

/// The request of the RFC's example, and the accept key of its response.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Splits an input into piece sizes and the data to be cut.
fn pieces(input: &[u8]) -> (Vec<usize>, &[u8]) {
    let Some((count, rest)) = input.split_first() else { return (Vec::new(), input) };
    let (sizes, rest) = rest.split_at(rest.len().min(usize::from(count % 16)));
    (sizes.iter().copied().map(usize::from).collect(), rest)
}

/// Length-prefixed messages equal those of a trivial loop.
pub fn length(input: &[u8]) {
    let (pieces, stream) = pieces(input);
    let decoder = || Decoder::Length(LengthDecoder::new(LIMIT));
    let (found, result) = read(decoder(), stream, &pieces);
    assert_eq!((found.clone(), result.clone()), read(decoder(), stream, &[]));

    let (mut rest, mut expected) = (stream, Vec::new());
    let end = loop {
        let Some((len, body)) = rest.split_first_chunk::<4>() else { break Ok(()) };
        let len = u32::from_be_bytes(*len) as usize;
        if len > LIMIT {
            break Err(Violation::TooLong { len: len as u64, limit: LIMIT });
        }
        let Some((message, behind)) = body.split_at_checked(len) else { break Ok(()) };
        assert_eq!(header(len as u32).bytes(), &rest[..4]);
        expected.push(Found::Message(Kind::Binary, message.to_vec()));
        rest = behind;
    };
    assert_eq!((found, result.map_err(|fault| fault.what)), (expected, end));
}

/// A client that waits for a response with this `Sec-WebSocket-Accept`.
fn expecting(accept: String) -> Opening {
    Opening::Answer(Box::new(Expected { accept, ..Expected::default() }))
}

fn websocket_decoder(side: Side) -> Decoder {
    let opening = match side {
        Side::Server => Opening::requested(Default::default()),
        Side::Client => expecting(ACCEPT.to_owned()),
    };
    Decoder::WebSocket(Box::new(WebSocketDecoder::new(side, opening, LIMIT, PARTS)))
}

/// The response to the RFC's request.
fn answer() -> Vec<u8> {
    match read(websocket_decoder(Side::Server), REQUEST, &[]).0.pop() {
        Some(Found::Open(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

/// What one side decodes after its handshake.
fn frames(side: Side, stream: &[u8], pieces: &[usize]) -> (Vec<Found>, Result<(), Fault>) {
    let handshake = if side == Side::Server { REQUEST.to_vec() } else { answer() };
    let pieces = [&[handshake.len()], pieces].concat();
    let (mut found, result) = read(websocket_decoder(side), &[&handshake, stream].concat(), &pieces);
    assert!(matches!(found.remove(0), Found::Open(_)));
    (found, result)
}

/// Checks frames on both sides: pieces do not matter, limits hold, text is UTF-8, nothing follows a
/// close, and encoding what was decoded gives the same again.
pub fn websocket(input: &[u8]) {
    let (pieces, stream) = pieces(input);
    for (side, key) in [(Side::Server, Some([1, 0, 0xff, 0x80])), (Side::Client, None)] {
        let (found, result) = frames(side, stream, &pieces);
        assert_eq!((found.clone(), result.clone()), frames(side, stream, &[]));
        let mut encoded = Vec::new();
        for (i, one) in found.iter().enumerate() {
            match one {
                Found::Message(kind, message) => {
                    assert!(message.len() <= LIMIT && (*kind == Kind::Binary || std::str::from_utf8(message).is_ok()));
                    encoded.extend_from_slice(websocket::header(Opcode::from(*kind), message.len(), key).bytes());
                    let at = encoded.len();
                    encoded.extend_from_slice(message);
                    mask::apply(&mut encoded[at..], key.unwrap_or_default(), 0);
                }
                Found::Ping(payload) => encoded.extend(websocket::control(Opcode::Ping, payload, key)),
                Found::Pong => encoded.extend(websocket::control(Opcode::Pong, b"", key)),
                Found::Close(close) => {
                    assert_eq!(i + 1, found.len());
                    encoded.extend(websocket::control(Opcode::Close, &close.payload(), key));
                }
                Found::Open(_) => panic!("the handshake was over"),
            }
        }
        assert_eq!(frames(side, &encoded, &pieces), (found, Ok(())));
        if let Err(fault) = result {
            assert_eq!(fault.reply, fault.what.code().to_be_bytes());
        }
    }
}

/// Checks compressed messages: pieces do not matter, limits hold for what is inflated, text is
/// UTF-8.
#[cfg(feature = "deflate")]
pub fn compressed(input: &[u8]) {
    let (pieces, stream) = pieces(input);
    let decoder = || Decoder::WebSocket(Box::new(WebSocketDecoder::compressed(Side::Client, LIMIT, PARTS)));
    let (found, result) = read(decoder(), stream, &pieces);
    let (whole, of_whole) = read(decoder(), stream, &[]);
    // Of two violations in one frame, the pieces decide which is found first.
    assert_eq!((&found, result.is_err()), (&whole, of_whole.is_err()));
    for one in found {
        if let Found::Message(kind, message) = one {
            assert!(message.len() <= LIMIT && (kind == Kind::Binary || std::str::from_utf8(&message).is_ok()));
        }
    }
}

/// The result of a handshake does not depend on the pieces. If it fails, more bytes may give
/// another reason.
fn handshake(side: Side, input: &[u8]) -> (Vec<Found>, Result<(), Fault>) {
    let (pieces, stream) = pieces(input);
    let whole = read(websocket_decoder(side), stream, &[]);
    let cut = read(websocket_decoder(side), stream, &pieces);
    assert_eq!(cut.0, whole.0);
    assert_eq!(cut.1.is_err(), whole.1.is_err());
    if !whole.0.is_empty() {
        assert_eq!(cut.1, whole.1);
    }
    whole
}

/// The response to a request is one that a client accepts, or an error.
pub fn request(input: &[u8]) {
    let (found, result) = handshake(Side::Server, input);
    match (found.first(), result) {
        (Some(Found::Open(reply)), _) => {
            let accept = reply.split(|byte| *byte == b' ').next_back().unwrap_or_default();
            let accept = String::from_utf8(accept.to_vec()).expect("it is base64").trim().to_owned();
            let decoder = WebSocketDecoder::new(Side::Client, expecting(accept), LIMIT, PARTS);
            let (found, result) = read(Decoder::WebSocket(Box::new(decoder)), reply, &[]);
            assert_eq!((found, result), (vec![Found::Open(Vec::new())], Ok(())));
        }
        (Some(other), _) => panic!("{other:?} before the handshake"),
        (None, Err(Fault { what: Violation::Handshake(_), reply })) => {
            assert!(reply.starts_with(b"HTTP/1.1 4") || reply.starts_with(b"HTTP/1.1 5"));
        }
        (None, other) => assert_eq!(other, Ok(())),
    }
}

/// A response is accepted only if it belongs to the RFC's request.
pub fn response(input: &[u8]) {
    let (found, result) = handshake(Side::Client, input);
    match (found.first(), result) {
        (Some(Found::Open(reply)), _) => {
            assert!(reply.is_empty() && input.windows(ACCEPT.len()).any(|window| window == ACCEPT.as_bytes()));
        }
        (Some(other), _) => panic!("{other:?} before the handshake"),
        (None, Err(Fault { what, reply })) => assert!(matches!(what, Violation::Handshake(_)) && reply.is_empty()),
        (None, Ok(())) => {}
    }
}

/// A proxy's answer means the same however it is cut, what is sent is bounded, and nothing behind
/// the answer is consumed.
pub fn proxy(input: &[u8]) {
    let (pieces, stream) = pieces(input);
    let address = "tcp://example.org:80".parse().expect("it is valid");
    for url in ["socks5://user:password@h:1080", "http://user:password@h:3128"] {
        let tunnel = Tunnel::new(&url.parse().expect("it is valid"), &address).expect("it has a host");
        let whole = exchange::run(&tunnel, stream, &[]);
        assert_eq!(exchange::run(&tunnel, stream, &pieces), whole);
        assert!(whole.sent.len() <= 3 && whole.sent.iter().all(|sent| sent.len() < 1000));
        if let Ok(Some(consumed)) = whole.end {
            // A byte less is not an answer.
            assert_eq!(exchange::run(&tunnel, &stream[..consumed - 1], &[]).end, Ok(None));
        }
    }
}

/// An address survives a round trip through text, and a server understands the request for a
/// WebSocket address.
pub fn address(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let address: Address = match text.parse() {
        Ok(address) => address,
        Err(error) => return assert!(error.to_string().len() < 1000),
    };
    assert_eq!(address.to_string().parse().as_ref(), Ok(&address));
    assert_eq!(address.port().is_some(), address.host().is_some());
    if matches!(address.scheme(), "ws" | "wss") {
        let (_, request) = Opening::request(&address, &Options::default()).expect("there are random bytes");
        let (found, result) = read(websocket_decoder(Side::Server), &request, &[]);
        assert!(matches!(&found[..], [Found::Open(_)]), "{address}: {result:?}");
    }
}

/// Validation agrees with the standard library, as soon as the result is certain.
pub fn utf8(input: &[u8]) {
    let (pieces, text) = pieces(input);
    let (mut checker, mut at) = (Utf8::default(), 0);
    for piece in pieces.into_iter().chain([usize::MAX]) {
        let end = at + piece.min(text.len() - at);
        let judged = checker.feed(&text[at..end]).is_ok();
        let certain = std::str::from_utf8(&text[..end]).is_err_and(|error| error.error_len().is_some());
        assert_eq!(judged, !certain);
        if !judged {
            return;
        }
        at = end;
    }
    assert_eq!(checker.finish().is_ok(), std::str::from_utf8(text).is_ok());
}

/// Masking follows the RFC however the payload is cut.
pub fn masking(input: &[u8]) {
    let (pieces, rest) = pieces(input);
    let Some((key, payload)) = rest.split_first_chunk::<4>() else { return };
    let expected: Vec<u8> = payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
    let (mut masked, mut at) = (payload.to_vec(), 0);
    for piece in pieces.into_iter().chain([usize::MAX]) {
        let end = at + piece.min(masked.len() - at);
        mask::apply(&mut masked[at..end], *key, at);
        at = end;
    }
    assert_eq!(masked, expected);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;

    use fastrand::Rng;

    use super::*;

    type Target = fn(&[u8]);

    /// Bytes with a meaning in one of the formats.
    const TELLING: &[u8] =
        b"\0\x01\x02\x03\x7d\x7e\x7f\x80\x81\x82\x88\x89\x8a\xc0\xe2\xed\xf4\xfe\xff \r\n:/@[]?#%+,0";

    fn mutate(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
        let at = rng.usize(..=input.len());
        let some = at..input.len().min(at + rng.usize(..8));
        match rng.u8(..6) {
            0 => drop(input.drain(some)),
            1 => input.insert(at, rng.u8(..)),
            2 => input.insert(at, *rng.choice(TELLING).expect("there are some")),
            3 => input[some].iter_mut().for_each(|byte| *byte ^= 1 << rng.u8(..8)),
            4 => input
                .splice(some, other.iter().skip(rng.usize(..=other.len())).take(rng.usize(..40)).copied())
                .for_each(drop),
            _ => input.extend_from_within(some),
        }
    }

    /// A short version of what `fuzz/` does without limit, from the same corpus.
    #[test]
    fn invariants_hold_for_thousands_of_mutated_inputs() {
        let targets: [(&str, Target); _] = [
            ("address", address),
            #[cfg(feature = "deflate")]
            ("compressed", compressed),
            ("length", length),
            ("masking", masking),
            ("proxy", proxy),
            ("request", request),
            ("response", response),
            ("utf8", utf8),
            ("websocket", websocket),
        ];
        for (name, target) in targets {
            let folder = format!("{}/fuzz/examples/{name}", env!("CARGO_MANIFEST_DIR"));
            let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            let examples: Vec<_> = files.iter().map(|path| fs::read(path).unwrap()).collect();
            examples.iter().for_each(|example| target(example));
            let mut rng = Rng::with_seed(1);
            for _ in 0..20_000 {
                let mut input = rng.choice(&examples).unwrap().clone();
                let other = rng.choice(&examples).unwrap();
                (0..rng.u8(1..6)).for_each(|_| mutate(&mut rng, &mut input, other));
                catch_unwind(|| target(&input)).unwrap_or_else(|_| panic!("{name}: {}", input.escape_ascii()));
            }
        }
    }
}
