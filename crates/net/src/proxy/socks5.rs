//! SOCKS5: RFC 1928, with user and password by RFC 1929.

use std::io::ErrorKind;
use std::net::IpAddr;

use super::login::Login;
use super::{Destination, Host, ProxyFailure, Step};

const VERSION: u8 = 5;
/// The version of the exchange of user and password.
const LOGIN_VERSION: u8 = 1;
const NO_LOGIN: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The dialogue with a SOCKS5 proxy.
pub(crate) struct Socks5 {
    awaits: Awaits,
    /// What has arrived of the answer.
    answer: Vec<u8>,
    /// The request to connect, until it is sent.
    request: Vec<u8>,
    /// The message with user and password, if the proxy may ask for it.
    login: Option<Vec<u8>>,
}

/// Which answer is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Method,
    LoginStatus,
    Reply,
}

impl Socks5 {
    pub(super) fn begin(to: &Destination, login: Option<&Login>) -> (Socks5, Vec<u8>) {
        let greeting = match login {
            Some(_) => vec![VERSION, 2, NO_LOGIN, USER_AND_PASSWORD],
            None => vec![VERSION, 1, NO_LOGIN],
        };
        let login = login.map(|login| {
            let mut message = vec![LOGIN_VERSION];
            push_short(&mut message, &login.user);
            push_short(&mut message, &login.password);
            message
        });
        (Socks5 { awaits: Awaits::Method, answer: Vec::new(), request: request(to), login }, greeting)
    }

    /// How many bytes the answer has, as far as its first bytes say.
    fn len(&self) -> Result<usize, ProxyFailure> {
        if self.awaits != Awaits::Reply {
            return Ok(2);
        }
        // Its first four bytes say whether an address of four or sixteen bytes follows, or a name
        // behind its length. Two bytes of a port are the last.
        match self.answer.get(3) {
            None => Ok(4),
            Some(&IPV4) => Ok(4 + 4 + 2),
            Some(&IPV6) => Ok(4 + 16 + 2),
            Some(&NAME) => Ok(self.answer.get(4).map_or(5, |len| 5 + usize::from(*len) + 2)),
            Some(_) => Err(ProxyFailure::Malformed("its reply has an unknown type of address")),
        }
    }

    pub(super) fn receive(&mut self, input: &[u8]) -> Result<(usize, Step), ProxyFailure> {
        let mut consumed = 0;
        loop {
            self.check()?;
            let missing = self.len()? - self.answer.len();
            if missing == 0 {
                let step = self.answered();
                self.answer.clear();
                return Ok((consumed, step?));
            }
            let rest = &input[consumed..];
            if rest.is_empty() {
                return Ok((consumed, Step::Receive));
            }
            let taken = missing.min(rest.len());
            self.answer.extend_from_slice(&rest[..taken]);
            consumed += taken;
        }
    }

    /// Checks what has arrived of the answer. A refusal may end behind its second byte.
    fn check(&self) -> Result<(), ProxyFailure> {
        let version = if self.awaits == Awaits::LoginStatus { LOGIN_VERSION } else { VERSION };
        match (self.awaits, &self.answer[..]) {
            (_, [first, ..]) if *first != version => Err(ProxyFailure::Malformed("the version of its answer is wrong")),
            (Awaits::LoginStatus, [_, status]) if *status != 0 => Err(ProxyFailure::Login(*status)),
            (Awaits::Reply, [_, reply, ..]) if *reply != 0 => Err(ProxyFailure::Reply(*reply)),
            _ => Ok(()),
        }
    }

    /// What follows a complete answer.
    fn answered(&mut self) -> Result<Step, ProxyFailure> {
        match self.awaits {
            Awaits::Method => match (self.answer[1], self.login.take()) {
                (NO_LOGIN, _) => {
                    self.awaits = Awaits::Reply;
                    Ok(Step::Send(std::mem::take(&mut self.request)))
                }
                (USER_AND_PASSWORD, Some(login)) => {
                    self.awaits = Awaits::LoginStatus;
                    Ok(Step::Send(login))
                }
                (NO_METHOD, _) => Err(ProxyFailure::NoMethod),
                _ => Err(ProxyFailure::Malformed("it chose a method that was not offered")),
            },
            Awaits::LoginStatus => {
                self.awaits = Awaits::Reply;
                Ok(Step::Send(std::mem::take(&mut self.request)))
            }
            Awaits::Reply => Ok(Step::Connected),
        }
    }
}

impl std::fmt::Debug for Socks5 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socks5").field("awaits", &self.awaits).finish_non_exhaustive()
    }
}

/// Appends a text behind its length. URLs and host names have at most 255 bytes of each.
fn push_short(to: &mut Vec<u8>, text: &str) {
    to.push(text.len() as u8);
    to.extend_from_slice(text.as_bytes());
}

/// The request to connect.
fn request(to: &Destination) -> Vec<u8> {
    let mut request = vec![VERSION, CONNECT, 0];
    match &to.host {
        Host::Ip(IpAddr::V4(ip)) => {
            request.push(IPV4);
            request.extend(ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            request.push(IPV6);
            request.extend(ip.octets());
        }
        Host::Name(name) => {
            request.push(NAME);
            push_short(&mut request, name);
        }
    }
    request.extend(to.port.to_be_bytes());
    request
}

/// What a reply means: RFC 1928, section 6.
pub(super) fn meaning(reply: u8) -> &'static str {
    match reply {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "timed out on the way",
        7 => "it does not support connecting",
        8 => "it does not support this type of address",
        _ => "unknown reason",
    }
}

pub(super) fn kind(reply: u8) -> ErrorKind {
    match reply {
        2 => ErrorKind::PermissionDenied,
        3 => ErrorKind::NetworkUnreachable,
        4 => ErrorKind::HostUnreachable,
        5 => ErrorKind::ConnectionRefused,
        6 => ErrorKind::TimedOut,
        7 | 8 => ErrorKind::Unsupported,
        _ => ErrorKind::Other,
    }
}
