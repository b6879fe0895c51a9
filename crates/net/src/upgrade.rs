//! The upgrade of an HTTP connection to a WebSocket: headers, and why an upgrade failed.

use std::fmt;

/// The headers of an HTTP request or response, in their order. Names are compared without regard to
/// case. Bytes of a value that are not UTF-8 are replaced by U+FFFD.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(Box<str>, Box<str>)>);

impl Headers {
    /// The value of the first header of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.get_all(name).next()
    }

    /// The values of all headers of this name, in their order.
    pub fn get_all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.iter().filter(move |(each, _)| each.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All headers: name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl From<&[httparse::Header<'_>]> for Headers {
    fn from(lines: &[httparse::Header<'_>]) -> Headers {
        let header = |line: &httparse::Header<'_>| (line.name.into(), String::from_utf8_lossy(line.value).into());
        // A head that is not complete has empty places behind its headers.
        Headers(lines.iter().filter(|line| !line.name.is_empty()).map(header).collect())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Why a WebSocket handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
#[non_exhaustive]
pub struct HandshakeError {
    /// What is wrong, as text for people.
    pub what: String,
    /// The status of the HTTP response: at a client the server's, at a server its own. `None` if the
    /// server's response is not HTTP.
    pub status: Option<u16>,
    /// The headers of the peer's request or response. Empty if it is not HTTP.
    pub headers: Headers,
}
