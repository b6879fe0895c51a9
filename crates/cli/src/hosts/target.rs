//! The other host of a run, as `--to` names it.

use std::fmt;
use std::str::FromStr;

/// The other host of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// `tcp://HOST:PORT`: a peer that listens there. With host and port.
    Tcp(String),
    /// `ssh://[USER@]HOST[:PORT]`: the command starts a peer there.
    Ssh(SshTarget),
}

/// A host that is reached by ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SshTarget {
    user: Option<String>,
    host: String,
    pub(crate) port: Option<u16>,
}

impl SshTarget {
    /// What ssh calls a destination: `[USER@]HOST`.
    pub(crate) fn destination(&self) -> String {
        match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        }
    }
}

/// Without the user's name.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp(address) => write!(f, "tcp://{address}"),
            Target::Ssh(SshTarget { host, port: Some(port), .. }) => write!(f, "ssh://{host}:{port}"),
            Target::Ssh(SshTarget { host, .. }) => write!(f, "ssh://{host}"),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let forms = "give tcp://HOST:PORT or ssh://[USER@]HOST[:PORT]";
        let (scheme, rest) = text.split_once("://").ok_or_else(|| format!("`{text}` names no host: {forms}"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        match scheme {
            "tcp" => match split_port(rest)? {
                (host, Some(_)) if is_host(host) => Ok(Target::Tcp(rest.to_owned())),
                (host, None) if is_host(host) => Err(format!("`{text}` has no port: {forms}")),
                _ => Err(format!("`{text}` names no host: {forms}")),
            },
            "ssh" => {
                let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
                let (host, port) = split_port(rest)?;
                // ssh would read a leading `-` as an option.
                if !is_host(host) || user.is_some_and(|user| !is_name(user)) {
                    return Err(format!("`{text}` names no host: {forms}"));
                }
                // ssh wants an IPv6 address without brackets.
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Ok(Target::Ssh(SshTarget { user: user.map(str::to_owned), host, port }))
            }
            _ => Err(format!("`{scheme}://` is not supported: {forms}")),
        }
    }
}

/// Divides `HOST[:PORT]`. An IPv6 address is in brackets.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let number = port.parse().ok().filter(|port| *port != 0);
            number.map(|port| (host, Some(port))).ok_or_else(|| format!("`{port}` is not a port: give 1 to 65535"))
        }
        _ => Ok((text, None)),
    }
}

fn is_host(host: &str) -> bool {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.map_or_else(|| is_name(host) && !host.contains(':'), |address| address.parse::<std::net::Ipv6Addr>().is_ok())
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "._-".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_and_shown_without_the_user() {
        for (text, shown) in [
            ("tcp://10.0.0.2:7000", "tcp://10.0.0.2:7000"),
            ("tcp://[::1]:7000", "tcp://[::1]:7000"),
            ("ssh://me@box", "ssh://box"),
            ("ssh://box:2222/", "ssh://box:2222"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), shown);
        }
        let Ok(Target::Ssh(target)) = "ssh://me@box:22".parse() else { panic!("not ssh") };
        assert_eq!((target.destination(), target.port), (String::from("me@box"), Some(22)));
    }

    #[test]
    fn what_is_no_host_is_an_error_with_the_form() {
        for text in ["box", "tcp://box", "tcp://:1", "tcp://box:0", "tcp://box:x", "ssh://", "ssh://-oProxyCommand=x"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        for text in ["ssh://-l@box", "ssh://a b", "ssh://box;ls", "http://box:1", "tcp://a:b:1"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
