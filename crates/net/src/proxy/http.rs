//! The method `CONNECT` of HTTP: RFC 9110, section 9.3.6, with Basic authentication by RFC 7617.

use std::io::ErrorKind;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::login::Login;
use super::{Destination, Host, ProxyFailure, Step};

/// The most bytes of all responses, and the most header lines of one.
const MAX_HEAD: usize = 16 << 10;
const MAX_LINES: usize = 100;
/// What every response begins with.
const START: &[u8] = b"HTTP/1.";
/// How many characters of a status's text are kept.
const MAX_REASON: usize = 80;

/// The dialogue with an HTTP proxy: one request, and one response behind any number of interim
/// ones.
#[derive(Debug)]
pub(crate) struct HttpConnect {
    /// What has arrived of the response's head.
    head: Vec<u8>,
    /// How many bytes interim responses had.
    skipped: usize,
}

impl HttpConnect {
    pub(super) fn begin(to: &Destination, login: Option<&Login>) -> (HttpConnect, Vec<u8>) {
        let host = match &to.host {
            Host::Ip(ip) => std::net::SocketAddr::new(*ip, to.port).to_string(),
            Host::Name(name) => format!("{name}:{}", to.port),
        };
        let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n");
        if let Some(Login { user, password }) = login {
            let encoded = STANDARD.encode(format!("{user}:{password}"));
            request.extend(["Proxy-Authorization: Basic ", &encoded, "\r\n"]);
        }
        request.push_str("\r\n");
        (HttpConnect { head: Vec::new(), skipped: 0 }, request.into_bytes())
    }

    pub(super) fn receive(&mut self, input: &[u8]) -> Result<(usize, Step), ProxyFailure> {
        let mut consumed = 0;
        while consumed < input.len() {
            let taken = self.take(&input[consumed..]);
            consumed += taken;
            let start = self.head.len().min(START.len());
            if self.head[..start] != START[..start] {
                return Err(ProxyFailure::Malformed("its answer is not a response of HTTP/1"));
            }
            if self.skipped + self.head.len() > MAX_HEAD {
                return Err(ProxyFailure::Malformed("the head of its response is longer than 16 KiB"));
            }
            if is_complete(&self.head) && self.response()? {
                return Ok((consumed, Step::Connected));
            }
        }
        Ok((consumed, Step::Receive))
    }

    /// Moves bytes to the head, up to its end. Returns how many.
    fn take(&mut self, input: &[u8]) -> usize {
        for (i, byte) in input.iter().enumerate() {
            self.head.push(*byte);
            if *byte == b'\n' && is_complete(&self.head) {
                return i + 1;
            }
        }
        input.len()
    }

    /// Whether a complete response says that the proxy has connected. Skips it if it is an interim
    /// one.
    fn response(&mut self) -> Result<bool, ProxyFailure> {
        let mut lines = [httparse::EMPTY_HEADER; MAX_LINES];
        let mut response = httparse::Response::new(&mut lines);
        let status = match (response.parse(&self.head), response.code) {
            (Ok(httparse::Status::Complete(_)), Some(status)) => status,
            _ => return Err(ProxyFailure::Malformed("its response is not valid HTTP")),
        };
        match status {
            // What the headers of a success say of a body does not count.
            200..300 => Ok(true),
            100..200 => {
                self.skipped += self.head.len();
                self.head.clear();
                Ok(false)
            }
            _ => {
                let reason = response.reason.unwrap_or_default().chars().take(MAX_REASON).collect();
                Err(ProxyFailure::Status { status, reason })
            }
        }
    }
}

/// Whether a head ends with an empty line. `httparse` accepts lines that end in a line feed only.
fn is_complete(head: &[u8]) -> bool {
    head.ends_with(b"\n\r\n") || head.ends_with(b"\n\n")
}

/// What to do about a status.
pub(super) fn remedy(status: u16) -> &'static str {
    match status {
        407 => ": it wants another user and password than the URL has, as in http://user:password@host:port",
        _ => "",
    }
}

pub(super) fn kind(status: u16) -> ErrorKind {
    match status {
        401 | 403 | 407 => ErrorKind::PermissionDenied,
        504 => ErrorKind::TimedOut,
        _ => ErrorKind::Other,
    }
}
