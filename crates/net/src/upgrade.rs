//! The upgrade of an HTTP connection to a WebSocket: headers, subprotocols, and why an upgrade failed.

use std::fmt;
use std::io;

use crate::transport::Options;

/// The headers of an HTTP request or response, in their order. Names are compared without regard to
/// case. Bytes of a value that are not UTF-8 are replaced by U+FFFD.
///
/// `Debug` prints the names only, because values such as that of `Authorization` may be secrets.
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

    /// Adds a header behind the others.
    pub(crate) fn push(&mut self, name: &str, value: &str) {
        self.0.push((name.into(), value.into()));
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
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
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

/// How a listener answers requests for an upgrade.
#[derive(Debug, Default)]
pub(crate) struct UpgradeRules {
    /// The supported subprotocols.
    pub(crate) subprotocols: Vec<String>,
}

impl UpgradeRules {
    pub(crate) fn new(options: &Options) -> UpgradeRules {
        UpgradeRules { subprotocols: options.subprotocols.clone() }
    }
}

/// Checks the options of a WebSocket.
///
/// # Errors
///
/// If a subprotocol or a header is invalid.
pub(crate) fn check_options(options: &Options) -> io::Result<()> {
    let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    for (i, name) in options.subprotocols.iter().enumerate() {
        if !is_token(name) {
            return invalid(format!(
                "the subprotocol {name:?} is not a token of HTTP: letters, digits and !#$%&'*+-.^_`|~"
            ));
        }
        if options.subprotocols[..i].contains(name) {
            return invalid(format!("the subprotocol {name:?} is listed twice"));
        }
    }
    match options.headers.iter().find_map(|(name, value)| header_error(name, value)) {
        Some(what) => invalid(what),
        None => Ok(()),
    }
}

/// Why a header cannot be added to a request or a response.
fn header_error(name: &str, value: &str) -> Option<String> {
    const OWN: [&str; 5] = ["host", "connection", "upgrade", "content-length", "transfer-encoding"];
    let lower = name.to_ascii_lowercase();
    if !is_token(name) {
        return Some(format!("the header {name:?} is not a token of HTTP: letters, digits and !#$%&'*+-.^_`|~"));
    }
    if lower == "sec-websocket-protocol" {
        return Some(format!("the header {name} belongs to the handshake: use Options::subprotocols"));
    }
    if OWN.contains(&&*lower) || lower.starts_with("sec-websocket-") {
        return Some(format!("the header {name} belongs to the handshake and cannot be set"));
    }
    // The value itself may be a secret.
    let odd = value.chars().find(|c| c.is_control() && *c != '\t')?;
    Some(format!("the value of the header {name} contains the control character {odd:?}"))
}

/// Whether a text is a token: RFC 9110, section 5.6.2.
pub(crate) fn is_token(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_headers_are_not_printed() {
        let options = Options::default().header("Authorization", "Bearer secret");
        assert_eq!(options.headers.get("authorization"), Some("Bearer secret"));
        let printed = format!("{options:?}");
        assert!(printed.contains("Authorization") && !printed.contains("secret"), "{printed}");
    }
}
