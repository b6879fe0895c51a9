//! The WebSocket handshake of both sides: RFC 6455, section 4. `httparse` parses the HTTP.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use super::super::{Fault, Item, Step, Violation};
use crate::upgrade::{HandshakeError, Headers};

/// The longest head of a request or response in bytes, and the most header lines.
const MAX_HEAD: usize = 16 << 10;
const MAX_LINES: usize = 100;
/// The suffix that a server adds to a client's key: section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What one side waits for.
#[derive(Debug)]
pub(crate) enum Opening {
    /// A client's request.
    Request,
    /// A server's response, which must have this `Sec-WebSocket-Accept`.
    Answer { accept: String },
}

impl Opening {
    /// Creates a client's request, and the state that waits for the response.
    ///
    /// # Errors
    ///
    /// If the system cannot provide random bytes.
    pub(crate) fn request(authority: &str, target: &str) -> std::io::Result<(Opening, Vec<u8>)> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(std::io::Error::other)?;
        let key = STANDARD.encode(nonce);
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        Ok((Opening::Answer { accept: accept(&key) }, request.into_bytes()))
    }

    /// Decodes the head, and checks it once it is complete.
    pub(super) fn read(&self, input: &[u8]) -> Result<Step, Fault> {
        let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
        match self {
            Opening::Request => {
                let mut request = httparse::Request::new(&mut lines);
                let consumed = match head_len(request.parse(input), input.len()) {
                    Ok(Some(consumed)) => consumed,
                    Ok(None) => return Ok(partial(input)),
                    Err(refusal) => return Err(refuse(refusal, Headers::default())),
                };
                match request_reply(&request) {
                    Ok(reply) => Ok(Step { consumed, item: Item::Open { reply } }),
                    Err(refusal) => Err(refuse(refusal, Headers::from(&*request.headers))),
                }
            }
            Opening::Answer { accept } => {
                let mut answer = httparse::Response::new(&mut lines);
                let consumed = match head_len(answer.parse(input), input.len()) {
                    Ok(Some(consumed)) => consumed,
                    Ok(None) => return Ok(partial(input)),
                    Err((_, what)) => return Err(fault(what, None, Headers::default(), Vec::new())),
                };
                match check_answer(&answer, accept) {
                    Ok(()) => Ok(Step { consumed, item: Item::Open { reply: Vec::new() } }),
                    Err(what) => Err(fault(what, answer.code, Headers::from(&*answer.headers), Vec::new())),
                }
            }
        }
    }
}

/// The status line of a refusal without its version, and why.
type Refusal = (&'static str, String);

/// The length of a head, or `None` if it is not complete. Fails if it is not HTTP or too long.
fn head_len(parsed: httparse::Result<usize>, available: usize) -> Result<Option<usize>, Refusal> {
    match parsed {
        Ok(httparse::Status::Complete(len)) if len <= MAX_HEAD => Ok(Some(len)),
        Ok(httparse::Status::Partial) if available < MAX_HEAD => Ok(None),
        Ok(_) => Err(("431 Request Header Fields Too Large", "the head is longer than 16 KiB".to_owned())),
        Err(error) => Err(("400 Bad Request", format!("invalid HTTP: {error}"))),
    }
}

/// The head is not complete.
fn partial(input: &[u8]) -> Step {
    Step { consumed: 0, item: Item::Partial { need: input.len() + 1 } }
}

/// Refuses a client's request: the response says why.
fn refuse((status, what): Refusal, headers: Headers) -> Fault {
    let reply = format!(
        "HTTP/1.1 {status}\r\nSec-WebSocket-Version: 13\r\nConnection: close\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{what}\n",
        what.len() + 1
    );
    let code = status.split(' ').next().and_then(|code| code.parse().ok());
    fault(what, code, headers, reply.into_bytes())
}

/// Ends a handshake. `reply` is sent to the peer first.
fn fault(what: String, status: Option<u16>, headers: Headers, reply: Vec<u8>) -> Fault {
    Fault { what: Violation::Handshake(Box::new(HandshakeError { what, status, headers })), reply }
}

/// A server's response to a request: section 4.2.
fn request_reply(request: &httparse::Request<'_, '_>) -> Result<Vec<u8>, Refusal> {
    let bad = |why: &str| ("400 Bad Request", why.to_owned());
    if request.method != Some("GET") {
        return Err(("405 Method Not Allowed", "a WebSocket request must use GET".to_owned()));
    }
    if request.version != Some(1) {
        return Err(("505 HTTP Version Not Supported", "a WebSocket needs HTTP/1.1".to_owned()));
    }
    let lines = &*request.headers;
    if one(lines, "host").is_none() {
        return Err(bad("no Host"));
    }
    if !has(lines, "upgrade", "websocket") || !has(lines, "connection", "upgrade") {
        return Err(("426 Upgrade Required", "this is a WebSocket: connect by ws://".to_owned()));
    }
    if one(lines, "sec-websocket-version") != Some("13") {
        return Err(("426 Upgrade Required", "Sec-WebSocket-Version is not 13".to_owned()));
    }
    let key = one(lines, "sec-websocket-key").ok_or_else(|| bad("no Sec-WebSocket-Key"))?;
    if STANDARD.decode(key).map(|nonce| nonce.len()) != Ok(16) {
        return Err(bad("Sec-WebSocket-Key is not 16 bytes in base64"));
    }
    Ok(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        accept(key)
    )
    .into_bytes())
}

/// Whether a server agreed: section 4.1.
fn check_answer(answer: &httparse::Response<'_, '_>, accept: &str) -> Result<(), String> {
    let bad = Err;
    if answer.code != Some(101) {
        return bad(format!("the server answered {} {}", answer.code.unwrap_or(0), answer.reason.unwrap_or_default()));
    }
    let lines = &*answer.headers;
    if !has(lines, "upgrade", "websocket") || !has(lines, "connection", "upgrade") {
        return bad("the server did not switch to WebSocket".to_owned());
    }
    if one(lines, "sec-websocket-accept") != Some(accept) {
        return bad("the server's Sec-WebSocket-Accept does not belong to this request".to_owned());
    }
    for unasked in ["sec-websocket-extensions", "sec-websocket-protocol"] {
        if lines.iter().any(|line| line.name.eq_ignore_ascii_case(unasked)) {
            return bad(format!("the server chose {unasked}, which was not offered"));
        }
    }
    Ok(())
}

/// The value of a header that occurs exactly once.
fn one<'a>(lines: &[httparse::Header<'a>], name: &str) -> Option<&'a str> {
    let mut found = lines.iter().filter(|line| line.name.eq_ignore_ascii_case(name));
    let value = std::str::from_utf8(found.next()?.value).ok()?;
    found.next().is_none().then_some(value.trim())
}

/// Whether a comma-separated list, over all headers of this name, contains this word.
fn has(lines: &[httparse::Header<'_>], name: &str, word: &str) -> bool {
    lines
        .iter()
        .filter(|line| line.name.eq_ignore_ascii_case(name))
        .filter_map(|line| std::str::from_utf8(line.value).ok())
        .flat_map(|value| value.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(word))
}

/// The `Sec-WebSocket-Accept` of a key: section 4.2.2.
fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(request: &str) -> Result<Step, String> {
        Opening::Request.read(request.as_bytes()).map_err(|fault| String::from_utf8(fault.reply).unwrap())
    }

    #[test]
    fn the_rfcs_example() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn both_sides_agree_however_the_stream_is_cut() {
        let (client, request) = Opening::request("h:1", "/a?b").unwrap();
        for cut in 0..request.len() {
            let step = Opening::Request.read(&request[..cut]).unwrap();
            assert_eq!(step, Step { consumed: 0, item: Item::Partial { need: cut + 1 } });
        }
        let with_more = [&request[..], b"more"].concat();
        let Step { consumed, item: Item::Open { reply } } = Opening::Request.read(&with_more).unwrap() else {
            panic!()
        };
        assert_eq!(consumed, request.len());
        let step = client.read(&reply).unwrap();
        assert_eq!(step, Step { consumed: reply.len(), item: Item::Open { reply: Vec::new() } });
    }

    #[test]
    fn an_invalid_request_gets_a_response_that_says_what_is_missing() {
        let (_, request) = Opening::request("h:1", "/").unwrap();
        let request = String::from_utf8(request).unwrap();
        let refused = |from: &str, to: &str| server(&request.replace(from, to)).unwrap_err();
        assert!(refused("GET", "POST").starts_with("HTTP/1.1 405 "));
        assert!(refused("HTTP/1.1", "HTTP/1.0").starts_with("HTTP/1.1 505 "));
        assert!(refused("Upgrade: websocket\r\n", "").starts_with("HTTP/1.1 426 "));
        assert!(refused("Version: 13", "Version: 8").contains("Sec-WebSocket-Version: 13"));
        assert!(refused("Sec-WebSocket-Key: ", "Sec-WebSocket-Key: a").starts_with("HTTP/1.1 400 "));
        assert!(refused("Host: h:1\r\n", "").contains("no Host"));
        assert!(server("\u{1}\r\n\r\n").unwrap_err().starts_with("HTTP/1.1 400 "));
        assert!(server(&format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(MAX_HEAD))).unwrap_err().contains("431"));
    }

    #[test]
    fn a_response_to_another_request_is_rejected() {
        let (_, request) = Opening::request("h:1", "/").unwrap();
        let (other, _) = Opening::request("h:1", "/").unwrap();
        let Item::Open { reply } = Opening::Request.read(&request).unwrap().item else { panic!() };
        assert!(other.read(&reply).unwrap_err().what.to_string().contains("does not belong"));
        assert!(other.read(b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap_err().what.to_string().contains("404 Not Found"));
    }
}
