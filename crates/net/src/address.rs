//! Addresses: URLs whose scheme names the transport.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The longest accepted address, in bytes.
const LONGEST: usize = 2048;
/// How many characters of an invalid address an error shows.
const SHOWN: usize = 80;

/// The URL of an endpoint, to listen at or to connect to.
///
/// | scheme | form | a message is |
/// |---|---|---|
/// | `tcp` | `tcp://host:port` | whatever one read returned |
/// | `tcp+msg` | `tcp+msg://host:port` | one sent message |
/// | `udp` | `udp://host:port` | one datagram |
/// | `unix` | `unix:///path`, `unix://@name` (abstract) | whatever one read returned |
/// | `unix+msg` | `unix+msg:///path`, `unix+msg://@name` | one sent message |
/// | `inproc` | `inproc://name`, within this process | whatever one read returned |
/// | `inproc+msg` | `inproc+msg://name` | one sent message |
/// | `ws` | `ws://host[:port][/path[?query]]` | one sent message |
/// | `tls`, `tls+msg`, `wss` | as `tcp`, `tcp+msg` and `ws`, over TLS: needs the feature `tls` | as with those |
///
/// With `+msg`, four bytes with the length of a message (big-endian) precede it: docs/framing.md in
/// the repository specifies it for peers in other languages.
///
/// An abstract name (`unix://@name`) is a UNIX socket without a file. It exists while somebody
/// listens there, and only Linux has such names. Every user of the same network namespace can
/// connect: [`Handle::peer_credentials`](crate::Handle::peer_credentials) says who did.
///
/// Any other scheme is for a custom [`Transport`](crate::Transport).
///
/// The file of a UNIX socket is removed when its listener closes or the node is dropped; for
/// signals see [`Handle::stop`](crate::Handle::stop).
///
/// Listening at a multicast address, such as `udp://239.1.2.3:4000`, joins that group.
///
/// With port 0 the system chooses a port; [`Handle::local_address`](crate::Handle::local_address)
/// returns it.
///
/// ```
/// use estafette_net::Address;
///
/// let address: Address = "tcp+msg://127.0.0.1:4000".parse()?;
/// assert_eq!((address.scheme(), address.host(), address.port()), ("tcp+msg", Some("127.0.0.1"), Some(4000)));
/// assert!("tcp://no-port".parse::<Address>().is_err());
/// # Ok::<(), estafette_net::AddressError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    scheme: Box<str>,
    place: Place,
    /// What follows the host: a path with its query, as written. Empty if the address has none.
    target: Box<str>,
}

/// The part between `://` and the path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// A host name or IP address (without brackets), and a port.
    Host(Box<str>, u16),
    /// A path in the local file system.
    Path(PathBuf),
    /// The name of an abstract UNIX socket (without `@`), of an in-process endpoint, or of a custom
    /// scheme.
    Name(Box<str>),
}

/// Why a text is not an [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid address: {why}")]
pub struct AddressError {
    text: String,
    why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("it has more than {LONGEST} bytes")]
    TooLong,
    #[error("it has a space or a control character at byte {0}")]
    Unprintable(usize),
    #[error("it does not begin with a scheme and ://, as tcp://127.0.0.1:4000 does")]
    NoScheme,
    #[error("a scheme begins with a letter and contains only letters, digits, +, - and .")]
    BadScheme,
    #[error("no host before the port; 0.0.0.0 or [::] listens on every interface")]
    NoHost,
    #[error("an IPv6 address needs brackets: {0}://[::1]:4000")]
    Unbracketed(Box<str>),
    #[error("the brackets contain no IPv6 address")]
    BadIpv6,
    #[error("{0:?} cannot be part of a host's name")]
    BadHost(char),
    #[error(
        "a user name or password cannot be part of an address; a WebSocket sends it in a header: \
         Options::header(\"Authorization\", ...)"
    )]
    UserInfo,
    #[error("a message of {0}:// keeps its boundaries without +msg: write {0}://")]
    NoFraming(Box<str>),
    #[error("no port; write {0}://{1}:4000, or :0 to have one chosen when listening")]
    NoPort(Box<str>, Box<str>),
    #[error("a port is a number from 0 to 65535")]
    BadPort,
    #[error("nothing may follow the port of {0}://")]
    Trailing(Box<str>),
    #[error("no path; write {0}:///tmp/a.sock, or {0}://@name for an abstract one")]
    NoPath(Box<str>),
    #[error("the path is not absolute: {0}:// is followed by a path that begins with /")]
    RelativePath(Box<str>),
    #[error("{0} bytes are too many for the path of a UNIX socket: the maximum is 107")]
    LongPath(usize),
    #[error("no name")]
    NoName,
}

/// How the text after `://` is parsed.
enum Form {
    HostAndPort,
    /// With the default port.
    HostAndTarget(u16),
    Unix,
    Any,
}

fn form(scheme: &str) -> Form {
    match scheme {
        "tcp" | "tcp+msg" | "udp" | "tls" | "tls+msg" => Form::HostAndPort,
        "ws" => Form::HostAndTarget(80),
        "wss" => Form::HostAndTarget(443),
        "unix" | "unix+msg" => Form::Unix,
        _ => Form::Any,
    }
}

impl Address {
    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Where the endpoint is, in terms of the scheme.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The host's name or address, without the brackets of IPv6.
    pub fn host(&self) -> Option<&str> {
        match &self.place {
            Place::Host(host, _) => Some(host),
            _ => None,
        }
    }

    /// The port, or the scheme's default port if it was left out.
    pub fn port(&self) -> Option<u16> {
        match &self.place {
            Place::Host(_, port) => Some(*port),
            _ => None,
        }
    }

    /// The path of a UNIX socket in the file system.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            Place::Path(path) => Some(path),
            _ => None,
        }
    }

    /// The target of a WebSocket request: the path with its query, or `/` if there is none.
    pub fn target(&self) -> &str {
        if self.target.is_empty() { "/" } else { &self.target }
    }

    /// The same address with another port.
    pub fn with_port(mut self, to: u16) -> Address {
        if let Place::Host(_, port) = &mut self.place {
            *port = to;
        }
        self
    }

    /// The host as in a `Host` header: IPv6 in brackets, with the port unless it is the scheme's
    /// default.
    pub(crate) fn authority(&self) -> String {
        let Place::Host(host, port) = &self.place else { return String::new() };
        let host = bracketed(host);
        match form(&self.scheme) {
            Form::HostAndTarget(usual) if usual == *port => host,
            _ => format!("{host}:{port}"),
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        parse(text).map_err(|why| AddressError { text: without_secret(text).chars().take(SHOWN).collect(), why })
    }
}

impl TryFrom<&str> for Address {
    type Error = AddressError;

    fn try_from(text: &str) -> Result<Address, AddressError> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Address, AddressError> {
        text.parse()
    }
}

impl From<&Address> for Address {
    fn from(address: &Address) -> Address {
        address.clone()
    }
}

/// The text of an address, with "..." in place of a user name and password.
fn without_secret(text: &str) -> Cow<'_, str> {
    match text.split_once("://") {
        Some((scheme, rest)) if !matches!(form(&scheme.to_ascii_lowercase()), Form::Unix | Form::Any) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            match rest[..end].rfind('@') {
                Some(at) => format!("{scheme}://...{}", &rest[at..]).into(),
                None => text.into(),
            }
        }
        _ => text.into(),
    }
}

fn parse(text: &str) -> Result<Address, Why> {
    if text.len() > LONGEST {
        return Err(Why::TooLong);
    }
    if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_whitespace() || c.is_control()) {
        return Err(Why::Unprintable(at));
    }
    let (scheme, rest) = text.split_once("://").ok_or(Why::NoScheme)?;
    if scheme.is_empty() {
        return Err(Why::NoScheme);
    }
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(usual) {
        return Err(Why::BadScheme);
    }
    let scheme: Box<str> = scheme.to_ascii_lowercase().into();
    if let Some(base @ ("udp" | "ws" | "wss")) = scheme.strip_suffix("+msg") {
        return Err(Why::NoFraming(base.into()));
    }
    let (place, target) = match form(&scheme) {
        Form::HostAndPort => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            if end < rest.len() {
                return Err(Why::Trailing(scheme));
            }
            (host_and_port(&scheme, rest, None)?, "")
        }
        Form::HostAndTarget(usual) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let (authority, target) = rest.split_at(end);
            // A fragment (after `#`) is never sent.
            let target = target.split('#').next().unwrap_or_default();
            (host_and_port(&scheme, authority, Some(usual))?, target)
        }
        Form::Unix => (unix(&scheme, rest)?, ""),
        Form::Any if rest.is_empty() => return Err(Why::NoName),
        Form::Any => (Place::Name(rest.into()), ""),
    };
    // A query without a path has the root as its path.
    let target = if target.starts_with('?') { format!("/{target}").into() } else { target.into() };
    Ok(Address { scheme, place, target })
}

fn host_and_port(scheme: &str, text: &str, usual: Option<u16>) -> Result<Place, Why> {
    if text.contains('@') {
        return Err(Why::UserInfo);
    }
    let (host, port) = if let Some(inner) = text.strip_prefix('[') {
        let (host, rest) = inner.split_once(']').ok_or(Why::BadIpv6)?;
        // A zone (`%eth0`) is interpreted by the resolver, which knows the interfaces.
        let bare = host.split('%').next().unwrap_or_default();
        bare.parse::<Ipv6Addr>().map_err(|_| Why::BadIpv6)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port),
            None if rest.is_empty() => None,
            None => return Err(Why::BadPort),
        };
        (host, port)
    } else if text.matches(':').count() > 1 {
        return Err(Why::Unbracketed(scheme.into()));
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(Why::NoHost);
    }
    if !text.starts_with('[') {
        let usual = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
        if let Some(odd) = host.chars().find(|c| !usual(*c)) {
            return Err(Why::BadHost(odd));
        }
    }
    let port = match (port, usual) {
        (Some(digits), _) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.parse().map_err(|_| Why::BadPort)?
        }
        (Some(_), _) => return Err(Why::BadPort),
        (None, Some(usual)) => usual,
        (None, None) => {
            let host = bracketed(host).chars().take(SHOWN).collect::<String>();
            return Err(Why::NoPort(scheme.into(), host.into()));
        }
    };
    Ok(Place::Host(host.into(), port))
}

fn unix(scheme: &str, text: &str) -> Result<Place, Why> {
    let bytes = text.trim_start_matches('@').len();
    match text {
        "" | "/" => Err(Why::NoPath(scheme.into())),
        "@" => Err(Why::NoName),
        _ if bytes > 107 => Err(Why::LongPath(bytes)),
        _ if text.starts_with('@') => Ok(Place::Name(text[1..].into())),
        _ if text.starts_with('/') => Ok(Place::Path(text.into())),
        _ => Err(Why::RelativePath(scheme.into())),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match (&self.place, form(&self.scheme)) {
            (Place::Host(host, port), Form::HostAndTarget(usual)) if *port == usual => f.write_str(&bracketed(host))?,
            (Place::Host(host, port), _) => write!(f, "{}:{port}", bracketed(host))?,
            (Place::Path(path), _) => write!(f, "{}", path.display())?,
            (Place::Name(name), Form::Unix) => write!(f, "@{name}")?,
            (Place::Name(name), _) => f.write_str(name)?,
        }
        f.write_str(&self.target)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// Parses a host that is an IP address and needs no resolver.
pub(crate) fn literal(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Address>().unwrap_err().to_string()
    }

    #[test]
    fn addresses_survive_a_round_trip_through_text() {
        for text in [
            "tcp://127.0.0.1:4000",
            "tcp+msg://localhost:0",
            "udp://[::1]:9",
            "udp://[fe80::1%eth0]:9",
            "tls+msg://example.org:443",
            "unix:///run/a.sock",
            "unix+msg://@name",
            "ws://example.org",
            "ws://example.org:8080/chat?room=1",
            "ws://[::1]/",
            "wss://example.org/",
            "inproc://name",
            "my-own://anything at all".replace(' ', "-").as_str(),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn omitted_parts_get_their_defaults() {
        let address: Address = "WS://example.org?a=1#part".parse().unwrap();
        assert_eq!((address.scheme(), address.port(), address.target()), ("ws", Some(80), "/?a=1"));
        assert_eq!(address.authority(), "example.org");
        assert_eq!("ws://[::1]:81".parse::<Address>().unwrap().authority(), "[::1]:81");
        assert_eq!("wss://h".parse::<Address>().unwrap().port(), Some(443));
    }

    #[test]
    fn an_invalid_address_says_what_is_wrong_and_what_would_be_right() {
        assert!(refused("127.0.0.1:80").contains("begin with a scheme"));
        assert!(refused("tcp://127.0.0.1").contains("tcp://127.0.0.1:4000"));
        assert!(refused("tcp://::1:80").contains("tcp://[::1]:4000"));
        assert!(refused("tcp://[::1]80").contains("number from 0 to 65535"));
        assert!(refused("tcp://[::g]:80").contains("no IPv6 address"));
        assert!(refused("tcp://[::1").contains("no IPv6 address"));
        assert!(refused("tcp://h:65536").contains("number from 0 to 65535"));
        assert!(refused("tcp://h:+1").contains("number from 0 to 65535"));
        assert!(refused("tcp://h:").contains("number from 0 to 65535"));
        assert!(refused("tcp://:80").contains("0.0.0.0"));
        assert!(refused("tcp://h:80/path").contains("nothing may follow"));
        assert!(refused("tcp://h%:80").contains("'%'"));
        for address in ["ws://user:secret@h", "wss://user:se@cret@[::1]:80/path", "tcp://user:secret@h:80"] {
            let error = refused(address);
            assert!(error.contains("user name or password") && !error.contains("cret@"), "{error}");
            assert!(error.contains("://...@"), "{error}");
        }
        assert!(refused("udp+msg://127.0.0.1:80").contains("write udp://"));
        assert!(refused("WS+msg://h").contains("write ws://"));
        assert!(refused("unix://relative.sock").contains("not absolute"));
        assert!(refused("unix://").contains("unix:///tmp/a.sock"));
        assert!(refused(&format!("unix:///{}", "a".repeat(107))).contains("107"));
        assert!(refused("tcp://h :80").contains("a space"));
        assert!(refused("1tcp://h:80").contains("begins with a letter"));
        assert!(refused(&format!("tcp://{}:1", "h".repeat(3000))).len() < 200);
        assert!(refused(&format!("tcp://{}", "h".repeat(2000))).len() < 300);
    }

    proptest! {
        #[test]
        fn any_text_is_a_valid_address_or_an_error(text in "\\PC{0,40}", scheme in "(tcp|udp|ws|unix|x)://") {
            for text in [text.clone(), format!("{scheme}{text}")] {
                if let Ok(address) = text.parse::<Address>() {
                    let parsed: Address = address.to_string().parse().unwrap();
                    prop_assert_eq!(parsed, address);
                }
            }
        }
    }
}
