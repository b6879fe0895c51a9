//! The upgrade of an HTTP connection to a WebSocket: request, response, headers, and why it failed.

use std::fmt;
use std::sync::Arc;

use crate::Address;
use crate::endpoint::Endpoint;
#[cfg(doc)]
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
    /// The status of the HTTP response: at a client the server's, at a server its own. `None` if
    /// the server's response is not HTTP.
    pub status: Option<u16>,
    /// The headers of the peer's request or response. Empty if it is not HTTP.
    pub headers: Headers,
}

/// A client's request to upgrade to a WebSocket, as [`Options::on_upgrade`] gets it.
#[derive(Debug)]
pub struct UpgradeRequest<'a> {
    endpoint: Endpoint,
    peer: Option<&'a Address>,
    target: &'a str,
    headers: Headers,
}

impl<'a> UpgradeRequest<'a> {
    pub(crate) fn new(
        endpoint: Endpoint,
        peer: Option<&'a Address>,
        target: &'a str,
        headers: Headers,
    ) -> UpgradeRequest<'a> {
        UpgradeRequest { endpoint, peer, target, headers }
    }

    /// The connection. If the request is accepted, [`Event::Accepted`](crate::Event::Accepted) has
    /// the same endpoint; otherwise [`Event::AcceptFailed`](crate::Event::AcceptFailed) has.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The peer's address in terms of the underlying transport, such as `tcp://192.0.2.1:4000`.
    pub fn peer(&self) -> Option<&'a Address> {
        self.peer
    }

    /// The path with its query, as the client wrote it: not decoded.
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// The path, without the query. It is not decoded.
    pub fn path(&self) -> &'a str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// What follows the `?`, if there is one. It is not decoded.
    pub fn query(&self) -> Option<&'a str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// All headers.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The value of the first header of this name, such as `Authorization`.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// The origin of the web page that connects. Browsers always send it. Compare it with those
    /// that may connect: a browser sends its cookies also if another site's page connects.
    pub fn origin(&self) -> Option<&str> {
        self.header("Origin")
    }

    /// The value of the first cookie of this name: RFC 6265, section 4.2.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let pairs = self.headers.get_all("Cookie").flat_map(|value| value.split(';'));
        let mut found = pairs.filter_map(|pair| pair.trim().split_once('=')).filter(|(each, _)| *each == name);
        found.next().map(|(_, value)| value)
    }

    /// The offered subprotocols, the preferred one first.
    pub fn subprotocols(&self) -> impl Iterator<Item = &str> {
        let names = self.headers.get_all("Sec-WebSocket-Protocol").flat_map(|value| value.split(','));
        names.map(str::trim).filter(|name| is_token(name))
    }
}

/// The answer of [`Options::on_upgrade`].
#[derive(Debug, Clone)]
pub struct UpgradeResponse {
    pub(crate) decision: Decision,
    pub(crate) headers: Headers,
}

/// Whether a WebSocket is opened.
#[derive(Debug, Clone)]
pub(crate) enum Decision {
    Accept { subprotocol: Option<String> },
    Reject { status: u16, text: String },
}

impl UpgradeResponse {
    /// Opens the WebSocket. Of the subprotocols, that of [`UpgradeResponse::subprotocol`] is
    /// chosen, else the client's first one that is among [`Options::subprotocols`].
    #[must_use]
    pub fn accept() -> UpgradeResponse {
        UpgradeResponse { decision: Decision::Accept { subprotocol: None }, headers: Headers::default() }
    }

    /// Refuses with this HTTP status, from 300 to 599, and a text for people as the body.
    #[must_use]
    pub fn reject(status: u16, text: impl Into<String>) -> UpgradeResponse {
        UpgradeResponse { decision: Decision::Reject { status, text: text.into() }, headers: Headers::default() }
    }

    /// Chooses a subprotocol that the client offers. Without effect on a refusal.
    #[must_use]
    pub fn subprotocol(mut self, name: impl Into<String>) -> UpgradeResponse {
        if let Decision::Accept { subprotocol } = &mut self.decision {
            *subprotocol = Some(name.into());
        }
        self
    }

    /// Adds a header, such as `Set-Cookie`, `WWW-Authenticate` or `Location`. What a request cannot
    /// have ([`Options::header`]) a response cannot have either.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> UpgradeResponse {
        self.headers.push(name, value);
        self
    }

    /// Why it cannot be sent, if it cannot.
    pub(crate) fn error(&self, request: &UpgradeRequest<'_>) -> Option<String> {
        match &self.decision {
            Decision::Accept { subprotocol: Some(chosen) } if !request.subprotocols().any(|one| one == chosen) => {
                return Some(format!("the subprotocol {chosen:?} was not offered"));
            }
            Decision::Reject { status, .. } if !(300..=599).contains(status) => {
                return Some(format!("{status} is not a status of 300 to 599"));
            }
            _ => {}
        }
        self.headers.iter().find_map(|(name, value)| header_error(name, value))
    }
}

/// The function of [`Options::on_upgrade`].
#[derive(Clone)]
pub struct UpgradeHook(Arc<dyn Fn(&UpgradeRequest<'_>) -> UpgradeResponse + Send + Sync>);

impl UpgradeHook {
    pub(crate) fn new(decide: impl Fn(&UpgradeRequest<'_>) -> UpgradeResponse + Send + Sync + 'static) -> UpgradeHook {
        UpgradeHook(Arc::new(decide))
    }

    pub(crate) fn decide(&self, request: &UpgradeRequest<'_>) -> UpgradeResponse {
        (self.0)(request)
    }
}

impl fmt::Debug for UpgradeHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpgradeHook")
    }
}

/// Why a header cannot be added to a request or a response.
pub(crate) fn header_error(name: &str, value: &str) -> Option<String> {
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
    use crate::transport::Options;

    #[test]
    fn the_values_of_headers_are_not_printed() {
        let options = Options::default().header("Authorization", "Bearer secret");
        assert_eq!(options.headers.get("authorization"), Some("Bearer secret"));
        let printed = format!("{options:?}");
        assert!(printed.contains("Authorization") && !printed.contains("secret"), "{printed}");
    }
}
