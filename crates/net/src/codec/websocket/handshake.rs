//! The WebSocket handshake of both sides: RFC 6455, section 4. `httparse` parses the HTTP.

use std::io;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use super::super::{Agreement, Fault, Item, Step, Violation};
use crate::Address;
use crate::deflate::Deflate;
use crate::endpoint::Endpoint;
use crate::transport::Options;
use crate::upgrade::{Decision, HandshakeError, Headers, UpgradeHook, UpgradeRequest, is_token};
use crate::upgrade_rules::{UpgradeRules, deflate};

/// The longest head of a request or response in bytes, and the most header lines.
const MAX_HEAD: usize = 16 << 10;
const MAX_LINES: usize = 100;
/// The suffix that a server adds to a client's key: section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The header of compression.
const EXTENSIONS: &str = "Sec-WebSocket-Extensions";

/// What one side waits for.
#[derive(Debug)]
pub(crate) enum Opening {
    /// A client's request.
    Request(Box<Awaited>),
    /// A server's response.
    Answer(Box<Expected>),
}

/// How the request of a client is answered.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) rules: Arc<UpgradeRules>,
    pub(crate) endpoint: Endpoint,
    pub(crate) peer: Option<Arc<Address>>,
}

/// The response that a client's request expects.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Its `Sec-WebSocket-Accept`.
    pub(crate) accept: String,
    /// The subprotocols that the request offered.
    pub(crate) offered: Vec<String>,
    /// The compression that it offered.
    pub(crate) deflate: Option<Deflate>,
}

impl Opening {
    /// Creates a client's request, and the state that waits for the response.
    ///
    /// # Errors
    ///
    /// If the system cannot provide random bytes.
    pub(crate) fn request(address: &Address, options: &Options) -> io::Result<(Opening, Vec<u8>)> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        let key = STANDARD.encode(nonce);
        let mut request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n",
            address.target(),
            address.authority(),
        );
        let offered = options.subprotocols.clone();
        if !offered.is_empty() {
            push_header(&mut request, "Sec-WebSocket-Protocol", &offered.join(", "));
        }
        let deflate = deflate(options);
        if let Some(deflate) = &deflate {
            push_header(&mut request, EXTENSIONS, &deflate.offer());
        }
        for (name, value) in options.headers.iter() {
            push_header(&mut request, name, value);
        }
        request.push_str("\r\n");
        let expected = Expected { accept: accept(&key), offered, deflate };
        Ok((Opening::Answer(Box::new(expected)), request.into_bytes()))
    }

    /// A server that waits for the request of nobody in particular.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn requested(rules: UpgradeRules) -> Opening {
        let endpoint = Endpoint::new(crate::slab::Slab::new().insert_with(|_| ()));
        Opening::Request(Box::new(Awaited { rules: Arc::new(rules), endpoint, peer: None }))
    }

    /// Decodes the head, and checks it once it is complete.
    pub(super) fn read(&self, input: &[u8]) -> Result<Step, Fault> {
        let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
        match self {
            Opening::Request(awaited) => {
                let mut request = httparse::Request::new(&mut lines);
                let consumed = match head_len(request.parse(input), input.len()) {
                    Ok(Some(consumed)) => consumed,
                    Ok(None) => return Ok(partial(input)),
                    Err(refusal) => return Err(refuse(refusal, Headers::default())),
                };
                match answer_request(&request, awaited) {
                    Ok(item) => Ok(Step { consumed, item }),
                    Err(refusal) => Err(refuse(refusal, Headers::from(&*request.headers))),
                }
            }
            Opening::Answer(expected) => {
                let mut answer = httparse::Response::new(&mut lines);
                let consumed = match head_len(answer.parse(input), input.len()) {
                    Ok(Some(consumed)) => consumed,
                    Ok(None) => return Ok(partial(input)),
                    Err(refusal) => return Err(fault(refusal.what, None, Headers::default(), Vec::new())),
                };
                // An interim response: the final one follows.
                if matches!(answer.code, Some(100 | 102..=199)) {
                    return Ok(Step { consumed, item: Item::Partial { need: 1 } });
                }
                match check_answer(&answer, expected) {
                    Ok(agreed) => Ok(Step { consumed, item: Item::Open { reply: Vec::new(), agreed } }),
                    Err(what) => Err(fault(what, answer.code, Headers::from(&*answer.headers), Vec::new())),
                }
            }
        }
    }
}

/// Appends a header line.
fn push_header(head: &mut String, name: &str, value: &str) {
    head.extend([name, ": ", value, "\r\n"]);
}

/// The refusal of a request.
struct Refusal {
    status: u16,
    /// Why, for the event at this side.
    what: String,
    /// The body of the response. `None`: what is wrong.
    body: Option<&'static str>,
    /// Further headers of the response.
    headers: Headers,
}

impl Refusal {
    fn new(status: u16, what: impl Into<String>) -> Refusal {
        Refusal { status, what: what.into(), body: None, headers: Headers::default() }
    }
}

/// The length of a head, or `None` if it is not complete. Fails if it is not HTTP or too long.
fn head_len(parsed: httparse::Result<usize>, available: usize) -> Result<Option<usize>, Refusal> {
    match parsed {
        Ok(httparse::Status::Complete(len)) if len <= MAX_HEAD => Ok(Some(len)),
        Ok(httparse::Status::Partial) if available < MAX_HEAD => Ok(None),
        Ok(_) => Err(Refusal::new(431, "the head is longer than 16 KiB")),
        Err(error) => Err(Refusal::new(400, format!("invalid HTTP: {error}"))),
    }
}

/// The head is not complete.
fn partial(input: &[u8]) -> Step {
    Step { consumed: 0, item: Item::Partial { need: input.len() + 1 } }
}

/// Refuses a client's request: the response says why. `received` are its headers.
fn refuse(Refusal { status, what, body, headers }: Refusal, received: Headers) -> Fault {
    let mut reply = format!("HTTP/1.1 {status} {}\r\n", phrase(status));
    push_header(&mut reply, "Sec-WebSocket-Version", "13");
    push_header(&mut reply, "Connection", "close");
    for (name, value) in headers.iter() {
        push_header(&mut reply, name, value);
    }
    if headers.get("Content-Type").is_none() {
        push_header(&mut reply, "Content-Type", "text/plain; charset=utf-8");
    }
    let body = body.unwrap_or(&what);
    push_header(&mut reply, "Content-Length", &(body.len() + 1).to_string());
    reply.extend(["\r\n", body, "\n"]);
    fault(what, Some(status), received, reply.into_bytes())
}

/// The usual phrase of a status: RFC 9110, section 15. Clients ignore it.
fn phrase(status: u16) -> &'static str {
    match status {
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        410 => "Gone",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ if status < 400 => "Redirect",
        _ if status < 500 => "Client Error",
        _ => "Server Error",
    }
}

/// Ends a handshake. `reply` is sent to the peer first.
fn fault(what: String, status: Option<u16>, headers: Headers, reply: Vec<u8>) -> Fault {
    Fault { what: Violation::Handshake(Box::new(HandshakeError { what, status, headers })), reply }
}

/// Answers a request: section 4.2.
fn answer_request(request: &httparse::Request<'_, '_>, awaited: &Awaited) -> Result<Item, Refusal> {
    let key = check_request(request)?;
    let rules = &awaited.rules;
    let supported = offered(request.headers).find(|offered| rules.subprotocols.iter().any(|one| one == offered));
    let (chosen, headers) = match &rules.hook {
        Some(hook) => decide(hook, request, awaited)?,
        None => (None, Headers::default()),
    };
    let subprotocol = chosen.as_deref().or(supported);
    let mut reply = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n".to_owned();
    if let Some(subprotocol) = subprotocol {
        push_header(&mut reply, "Sec-WebSocket-Protocol", subprotocol);
    }
    for (name, value) in headers.iter() {
        push_header(&mut reply, name, value);
    }
    let deflate = rules.deflate.as_ref().and_then(|deflate| deflate.accept(items(request.headers, EXTENSIONS)));
    if let Some((_, response)) = &deflate {
        push_header(&mut reply, EXTENSIONS, response);
    }
    push_header(&mut reply, "Sec-WebSocket-Accept", &accept(key));
    reply.push_str("\r\n");
    let agreed = Agreement { subprotocol: subprotocol.map(Box::from), deflate: deflate.map(|(agreed, _)| agreed) };
    Ok(Item::Open { reply: reply.into_bytes(), agreed })
}

/// Lets the user decide about a valid request. Returns the subprotocol that the user chose, if any,
/// and further headers of the response.
fn decide(
    hook: &UpgradeHook,
    request: &httparse::Request<'_, '_>,
    awaited: &Awaited,
) -> Result<(Option<String>, Headers), Refusal> {
    let (target, headers) = (request.path.unwrap_or_default(), Headers::from(&*request.headers));
    let request = UpgradeRequest::new(awaited.endpoint, awaited.peer.as_deref(), target, headers);
    let response = hook.decide(&request);
    if let Some(error) = response.error(&request) {
        // The details are for this side only.
        let what = format!("Options::on_upgrade returned an invalid response: {error}");
        return Err(Refusal { body: Some("internal error"), ..Refusal::new(500, what) });
    }
    match response.decision {
        Decision::Accept { subprotocol } => Ok((subprotocol, response.headers)),
        Decision::Reject { status, text } => Err(Refusal { headers: response.headers, ..Refusal::new(status, text) }),
    }
}

/// Checks a request, and returns its key.
fn check_request<'a>(request: &httparse::Request<'_, 'a>) -> Result<&'a str, Refusal> {
    let bad = |why: &str| Refusal::new(400, why);
    if request.method != Some("GET") {
        return Err(Refusal::new(405, "a WebSocket request must use GET"));
    }
    if request.version != Some(1) {
        return Err(Refusal::new(505, "a WebSocket needs HTTP/1.1"));
    }
    let lines = &*request.headers;
    if one(lines, "host").is_none() {
        return Err(bad("no Host"));
    }
    if !has(lines, "upgrade", "websocket") || !has(lines, "connection", "upgrade") {
        return Err(Refusal::new(426, "this is a WebSocket: connect by ws://"));
    }
    if one(lines, "sec-websocket-version") != Some("13") {
        return Err(Refusal::new(426, "Sec-WebSocket-Version is not 13"));
    }
    let key = one(lines, "sec-websocket-key").ok_or_else(|| bad("no Sec-WebSocket-Key"))?;
    if STANDARD.decode(key).map(|nonce| nonce.len()) != Ok(16) {
        return Err(bad("Sec-WebSocket-Key is not 16 bytes in base64"));
    }
    Ok(key)
}

/// Whether a server agreed: section 4.1. Returns the subprotocol and the compression that it chose.
fn check_answer(answer: &httparse::Response<'_, '_>, expected: &Expected) -> Result<Agreement, String> {
    if answer.code != Some(101) {
        let (code, reason) = (answer.code.unwrap_or(0), answer.reason.unwrap_or_default());
        return Err(format!("the server answered {code} {reason}").trim_end().to_owned());
    }
    let lines = &*answer.headers;
    if !has(lines, "upgrade", "websocket") || !has(lines, "connection", "upgrade") {
        return Err("the server did not switch to WebSocket".to_owned());
    }
    if one(lines, "sec-websocket-accept") != Some(&expected.accept) {
        return Err("the server's Sec-WebSocket-Accept does not belong to this request".to_owned());
    }
    let deflate = match &expected.deflate {
        Some(deflate) => deflate.check(items(lines, EXTENSIONS))?,
        None if values(lines, EXTENSIONS).next().is_some() => {
            return Err("the server chose sec-websocket-extensions, which was not offered".to_owned());
        }
        None => None,
    };
    Ok(Agreement { subprotocol: check_subprotocol(lines, &expected.offered)?, deflate })
}

/// Returns the subprotocol that a server chose.
fn check_subprotocol(lines: &[httparse::Header<'_>], offered: &[String]) -> Result<Option<Box<str>>, String> {
    if values(lines, "sec-websocket-protocol").next().is_none() {
        return Ok(None);
    }
    let chosen = one(lines, "sec-websocket-protocol").ok_or("the server chose more than one subprotocol")?;
    match offered.iter().any(|offered| offered == chosen) {
        true => Ok(Some(chosen.into())),
        false => Err(format!("the server chose the subprotocol {chosen:?}, which was not offered")),
    }
}

/// The subprotocols that a request offers, in the order of its preference.
fn offered<'a>(lines: &[httparse::Header<'a>]) -> impl Iterator<Item = &'a str> {
    items(lines, "sec-websocket-protocol").filter(|offered| is_token(offered))
}

/// The values of all headers of this name, as far as they are UTF-8.
fn values<'a>(lines: &[httparse::Header<'a>], name: &str) -> impl Iterator<Item = &'a str> {
    let named = lines.iter().filter(move |line| line.name.eq_ignore_ascii_case(name));
    named.filter_map(|line| std::str::from_utf8(line.value).ok())
}

/// The items of a comma-separated list, over all headers of this name.
fn items<'a>(lines: &[httparse::Header<'a>], name: &str) -> impl Iterator<Item = &'a str> {
    values(lines, name).flat_map(|value| value.split(',')).map(str::trim)
}

/// The value of a header that occurs exactly once.
fn one<'a>(lines: &[httparse::Header<'a>], name: &str) -> Option<&'a str> {
    let mut found = lines.iter().filter(|line| line.name.eq_ignore_ascii_case(name));
    let value = std::str::from_utf8(found.next()?.value).ok()?;
    found.next().is_none().then_some(value.trim())
}

/// Whether a comma-separated list, over all headers of this name, contains this word.
fn has(lines: &[httparse::Header<'_>], name: &str, word: &str) -> bool {
    items(lines, name).any(|item| item.eq_ignore_ascii_case(word))
}

/// The `Sec-WebSocket-Accept` of a key: section 4.2.2.
fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// A listener that supports these subprotocols.
    fn listener(supported: &[&str]) -> Opening {
        Opening::requested(UpgradeRules { subprotocols: names(supported), ..UpgradeRules::default() })
    }

    /// A client that offers these subprotocols, and its request.
    fn client(address: &str, offered: &[&str]) -> (Opening, Vec<u8>) {
        Opening::request(&address.parse().unwrap(), &Options::default().subprotocols(names(offered))).unwrap()
    }

    fn server(request: &str) -> Result<Step, String> {
        listener(&[]).read(request.as_bytes()).map_err(|fault| String::from_utf8(fault.reply).unwrap())
    }

    #[test]
    fn the_rfcs_example() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn both_sides_agree_however_the_stream_is_cut() {
        let (client, request) = client("ws://h:1/a?b", &[]);
        for cut in 0..request.len() {
            let step = listener(&[]).read(&request[..cut]).unwrap();
            assert_eq!(step, Step { consumed: 0, item: Item::Partial { need: cut + 1 } });
        }
        let with_more = [&request[..], b"more"].concat();
        let Step { consumed, item: Item::Open { reply, .. } } = listener(&[]).read(&with_more).unwrap() else {
            panic!()
        };
        assert_eq!(consumed, request.len());
        let step = client.read(&reply).unwrap();
        assert_eq!(
            step,
            Step { consumed: reply.len(), item: Item::Open { reply: Vec::new(), agreed: Agreement::default() } }
        );
    }

    #[test]
    fn an_invalid_request_gets_a_response_that_says_what_is_missing() {
        let (_, request) = client("ws://h:1", &[]);
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
        let (_, request) = client("ws://h:1", &[]);
        let (other, _) = client("ws://h:1", &[]);
        let Item::Open { reply, .. } = listener(&[]).read(&request).unwrap().item else { panic!() };
        assert!(other.read(&reply).unwrap_err().what.to_string().contains("does not belong"));
        assert!(other.read(b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap_err().what.to_string().contains("404 Not Found"));
    }

    #[test]
    fn the_clients_first_subprotocol_that_the_server_supports_is_chosen() {
        for (offered, supported, chosen) in [
            (&["a", "b", "c"][..], &["c", "b"][..], Some("b")),
            (&["a"], &["A"], None),
            (&["a"], &[], None),
            (&[], &["a"], None),
        ] {
            let (client, request) = client("ws://h", offered);
            let Item::Open { reply, agreed } = listener(supported).read(&request).unwrap().item else { panic!() };
            assert_eq!(agreed.subprotocol.as_deref(), chosen);
            let Item::Open { agreed, .. } = client.read(&reply).unwrap().item else { panic!() };
            assert_eq!(agreed.subprotocol.as_deref(), chosen);
        }
    }

    #[test]
    fn subprotocols_of_several_headers_are_one_list() {
        let (_, request) = client("ws://h", &[]);
        let request = String::from_utf8(request).unwrap();
        let lines = "Sec-WebSocket-Protocol: , a,\r\nsec-websocket-protocol: b c, b\r\n\r\n";
        let request = request.replace("\r\n\r\n", &format!("\r\n{lines}"));
        let item = listener(&["b", "b c"]).read(request.as_bytes()).unwrap().item;
        assert!(
            matches!(item, Item::Open { agreed: Agreement { subprotocol: Some(chosen), .. }, .. } if *chosen == *"b")
        );
    }

    #[test]
    fn a_server_may_choose_one_offered_subprotocol_only() {
        for (lines, error) in [
            ("Sec-WebSocket-Protocol: c\r\n", "\"c\", which was not offered"),
            ("Sec-WebSocket-Protocol: a, b\r\n", "\"a, b\", which was not offered"),
            ("Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: b\r\n", "more than one"),
        ] {
            let (client, request) = client("ws://h", &["a", "b"]);
            let Item::Open { reply, .. } = listener(&[]).read(&request).unwrap().item else { panic!() };
            let reply = String::from_utf8(reply).unwrap().replace("\r\n\r\n", &format!("\r\n{lines}\r\n"));
            let fault = client.read(reply.as_bytes()).unwrap_err();
            assert!(fault.what.to_string().contains(error), "{}", fault.what);
        }
    }

    #[test]
    fn interim_responses_are_skipped() {
        let (client, request) = client("ws://h", &[]);
        let Item::Open { reply, .. } = listener(&[]).read(&request).unwrap().item else { panic!() };
        for interim in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"] {
            let stream = [interim.as_bytes(), &reply].concat();
            let step = client.read(&stream).unwrap();
            assert_eq!(step, Step { consumed: interim.len(), item: Item::Partial { need: 1 } });
            assert!(matches!(client.read(&stream[step.consumed..]).unwrap().item, Item::Open { .. }));
        }
    }
}
