//! WebSocket libraries of other languages as peers, in both roles, with and without TLS: npm's `ws`
//! and PyPI's `websockets`. Their TLS is OpenSSL's.
//!
//! Each has a script beside this file. As a client it sends messages with every length of header,
//! text, a fragmented message with a ping between its fragments, and closes. As a server it echoes,
//! except for three texts:
//!
//! - `parts LENGTH SIZE`: it sends a message of this length in fragments of this size.
//! - `ping PAYLOAD`: it sends a ping and, after the pong, the text `pong PAYLOAD`.
//! - `close CODE REASON`: it closes. Our server supports this one too.
//!
//! If a library is unavailable, its tests are skipped with a message; with
//! `ESTAFETTE_PEERS=required` they fail.

mod common;

use std::env;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::process::Process;
use common::{PATIENCE, Seen, Side};
use estafette_net::{Close, Endpoint, Event, Handle, Kind, Message, Node, Options, Outcome, UpgradeResponse};
use tempfile::TempDir;

/// A library, and how to run a script that uses it.
struct Library {
    name: &'static str,
    /// Its Debian package.
    package: &'static str,
    script: &'static str,
    /// The interpreters to try, because a machine may have several. At least one has to find the
    /// library.
    programs: &'static [&'static str],
    /// Arguments that succeed if the interpreter finds the library.
    probe: [&'static str; 2],
}

const WS: Library = Library {
    name: "npm's ws",
    package: "node-ws",
    script: "ws.mjs",
    programs: &["node", "/usr/bin/node"],
    probe: ["-e", "require('ws')"],
};

const WEBSOCKETS: Library = Library {
    name: "PyPI's websockets",
    package: "python3-websockets",
    script: "websockets.py",
    programs: &["python3", "/usr/bin/python3"],
    probe: ["-c", "import websockets"],
};

/// The scheme and the TLS configuration of a test.
struct Setup {
    scheme: &'static str,
    /// The options of our listener and of our client.
    options: (Options, Options),
    /// The folder of the certificate that both sides use and trust.
    folder: Option<TempDir>,
}

fn plain() -> Setup {
    Setup { scheme: "ws", options: Default::default(), folder: None }
}

#[cfg(feature = "tls")]
fn over_tls() -> Setup {
    let folder = tempfile::tempdir().unwrap();
    Setup { scheme: "wss", options: common::tls::in_folder(folder.path()), folder: Some(folder) }
}

#[cfg(feature = "deflate")]
fn compressed() -> Setup {
    let options = Options::default().deflate(estafette_net::Deflate::default());
    Setup { options: (options.clone(), options), ..plain() }
}

impl Setup {
    /// The extensions that both sides agree upon.
    fn extensions(&self) -> &str {
        #[cfg(feature = "deflate")]
        if self.options.0.deflate.is_some() {
            return "permessage-deflate";
        }
        ""
    }
}

impl Library {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // Debian's folder for Node.js modules, behind the user's own.
        let modules = env::var("NODE_PATH").map_or_else(|_| String::new(), |own| format!("{own}:"));
        command.env("NODE_PATH", format!("{modules}/usr/share/nodejs")).env("PYTHONUTF8", "1");
        command
    }

    /// Starts the script, unless the library is unavailable.
    fn start(&self, setup: &Setup, arguments: &[&str]) -> Option<Process> {
        let finds = |program: &&&str| {
            let probe = self.command(program).args(self.probe).stderr(Stdio::null()).status();
            probe.is_ok_and(|status| status.success())
        };
        let Some(program) = self.programs.iter().find(finds) else {
            let absent = format!("{} is not here; it is in Debian's {}", self.name, self.package);
            assert!(env::var("ESTAFETTE_PEERS").as_deref() != Ok("required"), "{absent}");
            // Written directly: the test harness shows macro output of failed tests only.
            stderr().write_all(format!("skipped: {absent}\n").as_bytes()).unwrap();
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(self.script);
        let mut command = self.command(program);
        command.arg(script).args(arguments).args(setup.folder.as_ref().map(TempDir::path));
        Some(Process::start(&mut command))
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..251).cycle().take(len).collect()
}

fn answer(handle: &Handle, to: Endpoint, message: &Message<'_>) {
    let outcome = match message.kind() {
        Kind::Binary => handle.send(to, message),
        Kind::Text => {
            let text = std::str::from_utf8(message).unwrap();
            if let Some((code, reason)) = text.strip_prefix("close ").and_then(|rest| rest.split_once(' ')) {
                let why = Close { code: Some(code.parse().unwrap()), reason: reason.to_owned() };
                return handle.close_with(to, &why).unwrap();
            }
            handle.send_text(to, text)
        }
    };
    assert!(outcome.is_accepted(), "{outcome:?}");
}

fn talks_to_our_server(library: &Library, setup: &Setup) {
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let listener = handle.listen_with(format!("{}://127.0.0.1:0", setup.scheme), &setup.options.0).unwrap();
    let url = handle.local_address(listener).unwrap().to_string();
    let Some(mut peer) = library.start(setup, &["drive", &url]) else { return };
    let (mut reasons, begun) = (Vec::new(), Instant::now());
    loop {
        node.poll(Some(Duration::from_millis(1)), |event| match event {
            Event::Message(from, message) => answer(&handle, from, &message),
            Event::Closed { reason, .. } => reasons.push(reason.to_string()),
            _ => {}
        })
        .unwrap();
        let status = peer.child.try_wait().unwrap();
        assert!(status.is_none_or(|status| status.success()), "it says above what it missed; {reasons:?}");
        if status.is_some() && reasons.len() == 2 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it never ends: {reasons:?}");
    }
    assert_eq!(reasons, ["closed by the peer: 4001: grüße", "closed here"]);
    assert_eq!(peer.line("extensions").trim(), setup.extensions());
}

/// The library's client offers two subprotocols, and closes if it does not get the one that our
/// server supports.
fn negotiates_with_our_server(library: &Library) {
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let options = Options::default().subprotocols(["chat.v0", "chat.v1"]);
    let listener = handle.listen_with("ws://127.0.0.1:0", &options).unwrap();
    let url = handle.local_address(listener).unwrap().to_string();
    let Some(mut peer) = library.start(&plain(), &["negotiate", &url]) else { return };
    let (mut chosen, begun) = (Vec::new(), Instant::now());
    let status = loop {
        node.poll(Some(Duration::from_millis(1)), |event| match event {
            Event::Accepted { endpoint, .. } => chosen.push(handle.subprotocol(endpoint)),
            Event::Message(from, message) => answer(&handle, from, &message),
            _ => {}
        })
        .unwrap();
        if let Some(status) = peer.child.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "it never ends: {chosen:?}");
    };
    assert!(status.success(), "it says above what it missed");
    assert_eq!(chosen, [Some("chat.v1".to_owned())]);
}

/// The library's client is refused without a token, and accepted with one.
fn upgrades_at_our_server(library: &Library) {
    let options = Options::default().subprotocols(["chat.v1"]).on_upgrade(|request| {
        let has_cookie = request.cookie("user").is_some_and(|user| user.starts_with("Zo"));
        match (request.path(), request.query(), request.header("Authorization"), request.origin()) {
            ("/chat", Some("room=1"), Some("Bearer secret"), Some("https://example.org")) if has_cookie => {
                UpgradeResponse::accept().header("Set-Cookie", "seen=1")
            }
            _ => UpgradeResponse::reject(401, "a token is needed").header("WWW-Authenticate", "Bearer"),
        }
    });
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let listener = handle.listen_with("ws://127.0.0.1:0", &options).unwrap();
    let url = handle.local_address(listener).unwrap().to_string();
    let Some(mut peer) = library.start(&plain(), &["upgrade", &url]) else { return };
    let (mut events, begun) = (Vec::new(), Instant::now());
    let status = loop {
        node.poll(Some(Duration::from_millis(1)), |event| match event {
            Event::Accepted { .. } => events.push("accepted".to_owned()),
            Event::AcceptFailed(failure) => events.push(failure.reason.to_string()),
            _ => {}
        })
        .unwrap();
        if let Some(status) = peer.child.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "it never ends: {events:?}");
    };
    assert!(status.success(), "it says above what it missed: {events:?}");
    assert_eq!(events, ["WebSocket handshake: a token is needed", "accepted"]);
}

/// Our client offers two subprotocols, and sends a header.
fn negotiates_with_our_client(library: &Library) {
    let Some(peer) = library.start(&plain(), &["serve"]) else { return };
    let mut side = Side::new();
    let at = format!("ws://127.0.0.1:{}", peer.line("port "));
    let options = Options::default().subprotocols(["chat.v1", "chat.v0"]).header("Authorization", "Bearer secret");
    let to = side.handle.connect_with(&*at, &options).unwrap();
    assert_eq!(side.handle.subprotocol(to), None);
    assert_eq!(asked(&mut side, to, Kind::Text, b"hello"), (Kind::Text, b"hello".to_vec()));
    assert_eq!(side.handle.subprotocol(to).as_deref(), Some("chat.v1"));
    assert_eq!(peer.line("opened "), "chat.v1 Bearer secret");
}

/// Sends a message, and returns the server's reply.
fn asked(side: &mut Side, to: Endpoint, kind: Kind, message: &[u8]) -> (Kind, Vec<u8>) {
    side.seen.clear();
    let outcome = match kind {
        Kind::Binary => side.handle.send(to, message),
        Kind::Text => side.handle.send_text(to, std::str::from_utf8(message).unwrap()),
    };
    assert!(outcome.is_accepted(), "{outcome:?}");
    side.until("answered", |seen| match seen {
        Seen::Message(_, kind, message) => Some((*kind, message.clone())),
        _ => None,
    })
}

fn listens_to_our_client(library: &Library, setup: &Setup) {
    let Some(peer) = library.start(setup, &["serve"]) else { return };
    let at = format!("{}://127.0.0.1:{}", setup.scheme, peer.line("port "));
    let mut side = Side::new();
    let to = side.handle.connect_with(format!("{at}/a?b=c"), &setup.options.1).unwrap();
    let texts = ["".to_owned(), "grün 漢字 🦀\n".repeat(5000)].map(|text| (Kind::Text, text.into_bytes()));
    let sizes = [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 16 << 20].map(|len| (Kind::Binary, pattern(len)));
    for (kind, message) in sizes.into_iter().chain(texts) {
        let back = asked(&mut side, to, kind, &message);
        assert!(back == (kind, message), "what came back has {} bytes", back.1.len());
    }

    assert_eq!(peer.line("extensions").trim(), setup.extensions());
    side.seen.clear();
    let many: Vec<_> = (0..1000).map(|i| format!("message {i}").into_bytes()).collect();
    for message in &many {
        assert!(side.handle.send(to, message).is_accepted());
    }
    side.until("all", |seen| matches!(seen, Seen::Message(_, _, last) if *last == many[999]).then_some(()));
    assert_eq!(side.messages(to), many);

    assert!(asked(&mut side, to, Kind::Text, b"parts 100000 997") == (Kind::Binary, pattern(100_000)));
    assert_eq!(asked(&mut side, to, Kind::Text, b"ping hello"), (Kind::Text, b"pong hello".to_vec()));
    assert_eq!(side.handle.send_text(to, "close 3001 grüße"), Outcome::Sent);
    assert_eq!(side.until_closed(to), "closed by the peer: 3001: grüße");
    // The close frame that answered it carries its own code.
    assert_eq!(peer.line("closed "), "3001");

    let to = side.handle.connect_with(at, &setup.options.1).unwrap();
    side.until("connected", |seen| (*seen == Seen::Connected(to)).then_some(()));
    let why = Close { code: Some(4002), reason: "grüße zurück".to_owned() };
    side.handle.close_with(to, &why).unwrap();
    assert_eq!(side.until_closed(to), "closed here");
    assert_eq!(peer.line("closed "), "4002 grüße zurück");
}

#[test]
fn ws_negotiates_with_our_server() {
    negotiates_with_our_server(&WS);
}

#[test]
fn ws_negotiates_with_our_client() {
    negotiates_with_our_client(&WS);
}

#[test]
fn websockets_negotiates_with_our_server() {
    negotiates_with_our_server(&WEBSOCKETS);
}

#[test]
fn websockets_negotiates_with_our_client() {
    negotiates_with_our_client(&WEBSOCKETS);
}

#[test]
fn ws_upgrades_at_our_server() {
    upgrades_at_our_server(&WS);
}

#[test]
fn websockets_upgrades_at_our_server() {
    upgrades_at_our_server(&WEBSOCKETS);
}

#[test]
fn ws_talks_to_our_server() {
    talks_to_our_server(&WS, &plain());
}

#[test]
fn ws_listens_to_our_client() {
    listens_to_our_client(&WS, &plain());
}

#[test]
fn websockets_talks_to_our_server() {
    talks_to_our_server(&WEBSOCKETS, &plain());
}

#[test]
fn websockets_listens_to_our_client() {
    listens_to_our_client(&WEBSOCKETS, &plain());
}

#[cfg(feature = "deflate")]
#[test]
fn ws_talks_to_our_server_with_compression() {
    talks_to_our_server(&WS, &compressed());
}

#[cfg(feature = "deflate")]
#[test]
fn ws_listens_to_our_client_with_compression() {
    listens_to_our_client(&WS, &compressed());
}

#[cfg(feature = "deflate")]
#[test]
fn websockets_talks_to_our_server_with_compression() {
    talks_to_our_server(&WEBSOCKETS, &compressed());
}

#[cfg(feature = "deflate")]
#[test]
fn websockets_listens_to_our_client_with_compression() {
    listens_to_our_client(&WEBSOCKETS, &compressed());
}

#[cfg(feature = "tls")]
#[test]
fn ws_talks_to_our_server_over_tls() {
    talks_to_our_server(&WS, &over_tls());
}

#[cfg(feature = "tls")]
#[test]
fn ws_listens_to_our_client_over_tls() {
    listens_to_our_client(&WS, &over_tls());
}

#[cfg(feature = "tls")]
#[test]
fn websockets_talks_to_our_server_over_tls() {
    talks_to_our_server(&WEBSOCKETS, &over_tls());
}

#[cfg(feature = "tls")]
#[test]
fn websockets_listens_to_our_client_over_tls() {
    listens_to_our_client(&WEBSOCKETS, &over_tls());
}
