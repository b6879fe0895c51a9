//! Parsing and checks of single values, with their error messages.

use std::net::SocketAddr;
use std::time::Duration;

use super::units;

use super::diagnostic::quoted;
use super::function::HostPort;

/// The longest name of a function, source, sink, topic or queue, in bytes.
pub(super) const MAX_NAME: usize = 200;

/// An error in a value, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) message: String,
    pub(super) help: String,
}

impl Wrong {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong { message: message.into(), help: help.into() }
    }
}

/// Checks a name.
pub(super) fn name(text: &str) -> Result<String, Wrong> {
    let help = || format!("write 1 to {MAX_NAME} bytes without line feeds or other control characters");
    if text.is_empty() {
        return Err(Wrong::new("an empty name", help()));
    }
    if text.len() > MAX_NAME || text.contains(char::is_control) {
        return Err(Wrong::new(format!("{} is not a name", quoted(text)), help()));
    }
    Ok(text.to_owned())
}

/// Parses a size in bytes, `64MiB`, within bounds.
pub(super) fn size(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    let example = "write a whole number and a unit: 100B, 64kB, 4MB, 64KiB, 4MiB, 1GiB";
    let size = units::parse_size(text).ok_or_else(|| Wrong::new(format!("{} is not a size", quoted(text)), example))?;
    if (min..=max).contains(&size) {
        return Ok(size);
    }
    Err(Wrong::new(
        format!("{} is out of range", quoted(text)),
        format!("write {} to {}", units::size(min), units::size(max)),
    ))
}

/// Parses a time, `100ms`, within bounds.
pub(super) fn time(text: &str, min: Duration, max: Duration) -> Result<Duration, Wrong> {
    let example = "write a whole number and a unit, one of ns, us, ms, s, min: 100ms";
    let time = units::parse_time(text).ok_or_else(|| Wrong::new(format!("{} is not a time", quoted(text)), example))?;
    if (min..=max).contains(&time) {
        return Ok(time);
    }
    Err(Wrong::new(format!("{} is out of range", quoted(text)), format!("write {} to {}", written(min), written(max))))
}

/// Prints a time in the largest unit that is exact.
pub(super) fn written(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let unit = units.iter().find(|(_, scale)| ns >= *scale && ns.is_multiple_of(*scale));
    unit.map_or_else(|| format!("{ns}ns"), |(unit, scale)| format!("{}{unit}", ns / scale))
}

/// Parses a whole number within bounds.
pub(super) fn count(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    let help = || format!("write a whole number from {min} to {max}");
    let count: u64 = text.parse().map_err(|_| Wrong::new(format!("{} is not a whole number", quoted(text)), help()))?;
    match (min..=max).contains(&count) {
        true => Ok(count),
        false => Err(Wrong::new(format!("{} is out of range", quoted(text)), help())),
    }
}

/// Checks the URL of a WebSocket server.
pub(super) fn websocket_url(text: &str) -> Result<String, Wrong> {
    let wrong = |what: &str| {
        let help = "write ws://HOST:PORT/PATH or wss://HOST/PATH";
        Wrong::new(format!("{} is not a WebSocket URL: {what}", quoted(text)), help)
    };
    let rest = text.strip_prefix("ws://").or_else(|| text.strip_prefix("wss://"));
    let rest = rest.ok_or_else(|| wrong("it does not begin with ws:// or wss://"))?;
    if text.contains(|any: char| any.is_control() || any.is_whitespace()) {
        return Err(wrong("it has spaces"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(wrong("it has a user's name or password"));
    }
    let with_port = if has_port(authority) { authority.to_owned() } else { format!("{authority}:80") };
    split_host(&with_port).map_err(wrong)?;
    Ok(text.to_owned())
}

/// Checks the URL of a NATS server. It may have a user's name and a password or a token.
pub(super) fn nats_url(text: &str) -> Result<String, Wrong> {
    let wrong = |what: &str| {
        // Not quoted, as it may contain a password.
        Wrong::new(format!("not the URL of a NATS server: {what}"), "write nats://HOST:PORT or tls://HOST:PORT")
    };
    let rest = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://"));
    let rest = rest.ok_or_else(|| wrong("it does not begin with nats:// or tls://"))?;
    if text.contains(|any: char| any.is_control() || any.is_whitespace()) {
        return Err(wrong("it has spaces"));
    }
    let authority = rest.rsplit('@').next().unwrap_or_default();
    if authority.contains('/') {
        return Err(wrong("it has a path"));
    }
    let with_port = if has_port(authority) { authority.to_owned() } else { format!("{authority}:4222") };
    split_host(&with_port).map_err(wrong)?;
    Ok(text.to_owned())
}

/// Checks a word that may be part of a subject and of a stream's name.
pub(super) fn token(text: &str) -> Result<(), Wrong> {
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    match (1..=64).contains(&text.len()) && text.chars().all(is_good) {
        true => Ok(()),
        false => Err(Wrong::new(
            format!("{} is not a word for subjects", quoted(text)),
            "write 1 to 64 letters, digits, `-` and `_`: orders",
        )),
    }
}

/// Whether the host is followed by a colon; colons within IPv6 brackets do not count.
fn has_port(authority: &str) -> bool {
    authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'))
}

/// Parses a host and a port.
pub(super) fn host_port(text: &str) -> Result<HostPort, Wrong> {
    let help = "write HOST:PORT: example.org:443, 127.0.0.1:80, [::1]:80";
    split_host(text).map_err(|what| Wrong::new(format!("{} is not a host and a port: {what}", quoted(text)), help))
}

fn split_host(text: &str) -> Result<HostPort, &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
    let port = port.parse().ok().filter(|port: &u16| *port > 0).ok_or("the port is not 1 to 65535")?;
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) if address.parse::<std::net::Ipv6Addr>().is_ok() => address,
        Some(_) => return Err("there is no IPv6 address in the brackets"),
        None if is_host(host) => host,
        None => return Err("the host is neither a name nor an address"),
    };
    Ok(HostPort { host: host.to_owned(), port })
}

/// Whether a text is a host name or an IPv4 address.
fn is_host(host: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(is_letter);
    host.len() <= 253 && host.strip_suffix('.').unwrap_or(host).split('.').all(is_label)
}

/// Parses the address that a server listens on.
pub(super) fn listen(text: &str) -> Result<SocketAddr, Wrong> {
    text.parse().map_err(|_| {
        let help = "write an IP address and a port: 127.0.0.1:8080 for this machine, 0.0.0.0:8080 for all";
        Wrong::new(format!("{} is not an address to listen at", quoted(text)), help)
    })
}

/// Checks the path of HTTP requests.
pub(super) fn http_path(text: &str) -> Result<String, Wrong> {
    let is_part = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '?' | '#');
    if text.starts_with('/') && text.chars().all(is_part) {
        return Ok(text.to_owned());
    }
    Err(Wrong::new(
        format!("{} is not a path of requests", quoted(text)),
        "begin with a slash, without `?` and spaces: /in",
    ))
}

/// Checks the path of a file or folder.
pub(super) fn path(text: &str) -> Result<String, Wrong> {
    match text.is_empty() || text.contains('\0') {
        true => {
            Err(Wrong::new(format!("{} is not a path", quoted(text)), "write the path of a file: functions/send.wasm"))
        }
        false => Ok(text.to_owned()),
    }
}

/// Checks the name of an environment variable.
pub(super) fn variable(text: &str) -> Result<(), Wrong> {
    match text.is_empty() || text.contains(['=', '\0']) {
        true => Err(Wrong::new(
            format!("{} is not the name of a variable", quoted(text)),
            "write a name without `=`: LEVEL",
        )),
        false => Ok(()),
    }
}

/// The known word that is nearest to an unknown one, if the difference is small.
pub(super) fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if unknown.len() > LONGEST {
        return None;
    }
    let near = |word: &'a str| {
        let (unknown, lower) = (unknown.to_lowercase(), word.to_lowercase());
        if unknown.len() >= 3 && lower.starts_with(&unknown) {
            return Some((1, word));
        }
        let distance = distance(&unknown, &lower);
        let allowed = (unknown.chars().count().max(word.chars().count()) / 3).max(1);
        (distance <= allowed).then_some((distance, word))
    };
    known.into_iter().filter(|word| word.len() <= LONGEST).filter_map(near).min().map(|(_, word)| word)
}

/// The edit distance of two words, where the swap of two neighbouring letters counts as one edit
/// (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(row[j - 1] + 1).min(rows[i - 1][j] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for good in ["ws://localhost:3012/a?b", "wss://example.org", "ws://[::1]:80/", "ws://127.0.0.1:1"] {
            assert_eq!(websocket_url(good).as_deref(), Ok(good));
        }
        for bad in ["http://a", "ws://", "ws://a b", "ws://:80", "ws://a:0", "ws://a:70000", "ws://[::1", "ws://u@a"] {
            assert!(websocket_url(bad).is_err(), "{bad}");
        }
        for good in ["nats://localhost:4222", "tls://nats.example.org", "nats://user:p/ss@[::1]:4222"] {
            assert_eq!(nats_url(good).as_deref(), Ok(good));
        }
        for bad in ["http://a", "nats://", "nats://a b", "nats://a:0", "nats://a/b", "nats://secret@a:x"] {
            let wrong = nats_url(bad).unwrap_err();
            assert!(!wrong.message.contains("secret"), "{}", wrong.message);
        }
        assert!(token("orders-2_b").is_ok() && token("a.b").is_err() && token("").is_err() && token("a*").is_err());
        assert_eq!(host_port("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(host_port("example.org:443").unwrap().to_string(), "example.org:443");
        for bad in ["example.org", "a:b", "::1:80", ":80", "a..b:80"] {
            assert!(host_port(bad).is_err(), "{bad}");
        }
        assert!(listen("127.0.0.1:0").is_ok() && listen("localhost:80").is_err());
        assert!(http_path("/a/b").is_ok() && http_path("a").is_err() && http_path("/a?b").is_err());
    }

    #[test]
    fn similar_words_are_suggested() {
        let keys = ["name", "kind", "module", "args", "input", "output"];
        for (typed, meant) in
            [("argz", "args"), ("nmae", "name"), ("Output", "output"), ("inputs", "input"), ("mod", "module")]
        {
            assert_eq!(nearest(typed, keys), Some(meant));
        }
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest(&"a".repeat(100_000), keys), None);
    }

    #[test]
    fn errors_state_the_bounds() {
        let wrong = size("1B", 4096, 1 << 40).unwrap_err();
        assert_eq!(wrong.help, "write 4KiB to 1024GiB");
        assert!(time("0s", Duration::from_millis(1), Duration::from_secs(3600)).is_err());
        assert!(count("-1", 0, 3).unwrap_err().help.contains("0 to 3"));
        assert!(name("").is_err() && name("a\nb").is_err() && name("polo-input:raw").is_ok());
    }
}
