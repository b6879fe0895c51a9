//! The URL of a proxy.

use std::str::FromStr;

use super::login::Login;
use super::{Protocol, Proxy};
use crate::Address;

/// How many characters of an invalid URL an error shows.
const SHOWN: usize = 80;
/// The most bytes of a user or a password: RFC 1929 has one byte for the length.
const MAX_PART: usize = 255;

/// Why a text is not the URL of a [`Proxy`]. It shows neither user nor password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown:?} is not a valid proxy: {why}")]
pub struct ProxyUrlError {
    /// The part behind the user and password.
    shown: String,
    why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("it begins neither with socks5:// nor with http://")]
    Scheme,
    #[error("a proxy whose own connection is TLS is not supported: use http://, or socks5://")]
    Https,
    #[error("host and port are missing or invalid; write socks5://127.0.0.1:1080, with an IPv6 address in brackets")]
    Place,
    #[error("the port is 0")]
    PortZero,
    #[error("in the user or password, % needs two hexadecimal digits behind it, and the bytes have to be UTF-8")]
    Escape,
    #[error("the user or password has a control character")]
    Control,
    #[error("the user contains a colon, which HTTP cannot send")]
    Colon,
    #[error("the user is empty")]
    NoUser,
    #[error("the password is empty, which SOCKS5 cannot send")]
    NoPassword,
    #[error("the user or password has more than {MAX_PART} bytes")]
    TooLong,
}

impl FromStr for Proxy {
    type Err = ProxyUrlError;

    fn from_str(text: &str) -> Result<Proxy, ProxyUrlError> {
        parse(text).map_err(|why| {
            let shown = text.rsplit('@').next().unwrap_or_default();
            ProxyUrlError { shown: shown.chars().take(SHOWN).collect(), why }
        })
    }
}

fn parse(text: &str) -> Result<Proxy, Why> {
    let (scheme, rest) = text.split_once("://").ok_or(Why::Scheme)?;
    let protocol = match &*scheme.to_ascii_lowercase() {
        "socks5" | "socks5h" => Protocol::Socks5,
        "http" => Protocol::HttpConnect,
        "https" => return Err(Why::Https),
        _ => return Err(Why::Scheme),
    };
    // A password may contain an @ or a slash that was not escaped.
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let place = place.strip_suffix('/').unwrap_or(place);
    let address: Address = format!("tcp://{place}").parse().map_err(|_| Why::Place)?;
    if address.port() == Some(0) {
        return Err(Why::PortZero);
    }
    let login = login.map(|login| parse_login(login, protocol)).transpose()?;
    Ok(Proxy { protocol, address, login })
}

fn parse_login(text: &str, protocol: Protocol) -> Result<Login, Why> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let (user, password) = (unescaped(user)?, unescaped(password)?);
    if user.is_empty() {
        return Err(Why::NoUser);
    }
    if user.len() > MAX_PART || password.len() > MAX_PART {
        return Err(Why::TooLong);
    }
    match protocol {
        Protocol::Socks5 if password.is_empty() => Err(Why::NoPassword),
        // RFC 7617, section 2.
        Protocol::HttpConnect if user.contains(':') => Err(Why::Colon),
        Protocol::HttpConnect if user.chars().chain(password.chars()).any(char::is_control) => Err(Why::Control),
        _ => Ok(Login { user: user.into(), password: password.into() }),
    }
}

/// Resolves `%` escapes.
fn unescaped(text: &str) -> Result<String, Why> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<2>().ok_or(Why::Escape)?;
        let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
        bytes.push((high.ok_or(Why::Escape)? << 4 | low.ok_or(Why::Escape)?) as u8);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| Why::Escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Proxy>().unwrap_err().to_string()
    }

    #[test]
    fn a_url_names_protocol_place_and_login() {
        let proxy: Proxy = "SOCKS5h://me:p%40ss%3aw@rd@proxy.example:1080/".parse().unwrap();
        assert_eq!((proxy.protocol, proxy.address.host()), (Protocol::Socks5, Some("proxy.example")));
        let login = proxy.login.unwrap();
        assert_eq!((&*login.user, &*login.password), ("me", "p@ss:w@rd"));
        let proxy: Proxy = "http://me@[::1]:3128".parse().unwrap();
        assert_eq!(proxy.to_string(), "http://[::1]:3128");
        assert_eq!(&*proxy.login.unwrap().password, "");
        assert!("http://127.0.0.1:80".parse::<Proxy>().unwrap().login.is_none());
    }

    #[test]
    fn user_and_password_are_never_printed() {
        let proxy: Proxy = "socks5://someone:secret@192.0.2.1:1080".parse().unwrap();
        let options = crate::Options::default().proxy(proxy.clone());
        for printed in [proxy.to_string(), format!("{proxy:?}"), format!("{options:?}")] {
            assert!(printed.contains("socks5://192.0.2.1:1080"), "{printed}");
            assert!(!printed.contains("secret") && !printed.contains("someone"), "{printed}");
        }
        for wrong in [
            "ftp://someone:secret@h:1",
            "someone:secret@h:1",
            "socks5://someone:secret@h",
            "http://some%3Aone:secret@h:1",
            "socks5://someone:secret%4@h:1",
        ] {
            let error = wrong.parse::<Proxy>().unwrap_err();
            let printed = format!("{error} {error:?}");
            assert!(!printed.contains("secret") && !printed.contains("some"), "{printed}");
        }
    }

    #[test]
    fn an_invalid_url_says_what_is_wrong() {
        assert!(refused("127.0.0.1:1080").contains("begins neither with socks5://"));
        assert!(refused("socks4://h:1").contains("begins neither with socks5://"));
        assert!(refused("https://h:1").contains("http://"));
        for place in ["socks5://h", "socks5://", "http://h:80/path", "http://::1:80", "http://h:65536", "http://u:p@"] {
            assert!(refused(place).contains("socks5://127.0.0.1:1080"), "{place}");
        }
        assert!(refused("http://h:0").contains("port is 0"));
        for escape in ["%", "%4", "%4g", "%ff"] {
            assert!(refused(&format!("http://u:{escape}@h:1")).contains("two hexadecimal digits"), "{escape}");
        }
        assert!(refused("http://u%3a:p@h:1").contains("colon"));
        assert!(refused("http://u:p%0d@h:1").contains("control character"));
        assert!(refused("http://:p@h:1").contains("user is empty"));
        assert!(refused("socks5://u@h:1").contains("password is empty"));
        assert!(refused(&format!("http://u:{}@h:1", "p".repeat(256))).contains("more than 255"));
        assert!(refused(&format!("socks5://{}", "h".repeat(10_000))).len() < 300);
    }
}
