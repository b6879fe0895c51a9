//! The example `chat_server`: its routes and its authentication, and its page in headless Chromium.
//!
//! If there is no browser, the test of the page is skipped with a message; with
//! `ESTAFETTE_PAGES=required` it fails.

mod common;

#[path = "../examples/chat_server.rs"]
#[allow(dead_code, reason = "its `main` is not called here")]
mod chat_server;

use std::env;
use std::path::Path;
use std::process::Command;
use std::thread::{self, JoinHandle};

use chat_server::Server;
use common::process::Process;
use common::{PATIENCE, Seen, Side};
use estafette_net::{Endpoint, Event, Handle, Node, Options, Reason, Violation};

/// A server that runs in a thread.
struct Running {
    page: String,
    sockets: String,
    handle: Handle<()>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start() -> Running {
        let mut server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (page, sockets, handle) = (server.page.clone(), server.sockets.clone(), server.handle());
        Running { page, sockets, handle, thread: thread::spawn(move || server.run().unwrap()) }
    }

    fn stop(self) {
        self.handle.shutdown(PATIENCE);
        self.thread.join().unwrap();
    }

    /// The status with which a request is refused, or `None` if it is accepted.
    fn refusal(&self, path: &str, options: &Options) -> Option<u16> {
        let mut node = Node::<()>::new().unwrap();
        node.handle().connect_with(format!("{}{path}", self.sockets), options).unwrap();
        match node.next(Some(PATIENCE)).unwrap() {
            Some(Event::Connected(_)) => None,
            Some(Event::Closed { reason: Reason::Violation(Violation::Handshake(error)), .. }) => error.status,
            other => panic!("{other:?}"),
        }
    }

    /// A guest in the room `hall`.
    fn guest(&self, token: &str) -> (Side, Endpoint) {
        let mut side = Side::new();
        let options = Options::default().header("Authorization", &format!("Bearer {token}"));
        let endpoint = side.handle.connect_with(format!("{}/rooms/hall", self.sockets), &options).unwrap();
        side.step_until("open", |seen| seen.contains(&Seen::Connected(endpoint)));
        (side, endpoint)
    }
}

fn until_line(side: &mut Side, line: &str) {
    side.step_until(line, |seen| {
        seen.iter().any(|seen| matches!(seen, Seen::Message(_, _, text) if text == line.as_bytes()))
    });
}

#[test]
fn a_request_needs_a_room_an_origin_and_a_token() {
    let server = Running::start();
    let origin = server.page.trim_end_matches('/').to_owned();
    let plain = Options::default;
    let header = |value: &str| plain().header("Authorization", value);
    let known = header("Bearer apple");
    assert_eq!(server.refusal("/rooms/hall", &known), None);
    assert_eq!(server.refusal("/rooms/hall", &plain().header("Cookie", "a=b; token=pear")), None);
    assert_eq!(server.refusal("/rooms/hall", &plain().subprotocols(["chat.v1", "token.apple"])), None);
    assert_eq!(server.refusal("/rooms/hall?token=apple", &plain()), Some(401));
    for wrong in ["Bearer orange", "Basic apple", "Bearer "] {
        assert_eq!(server.refusal("/rooms/hall", &header(wrong)), Some(401), "{wrong}");
    }
    for path in ["", "/", "/room/hall", "/rooms/", "/rooms/a/b", "/rooms/%2e"] {
        assert_eq!(server.refusal(path, &known), Some(404), "{path}");
    }
    let from = |origin: &str| known.clone().header("Origin", origin);
    assert_eq!(server.refusal("/rooms/hall", &from(&origin)), None);
    for other in ["https://example.org", "null", &server.page] {
        assert_eq!(server.refusal("/rooms/hall", &from(other)), Some(403), "{other}");
    }
    server.stop();
}

#[test]
fn guests_in_a_room_hear_each_other() {
    let server = Running::start();
    let (mut zoe, to_zoe) = server.guest("apple");
    let (mut max, to_max) = server.guest("pear");
    until_line(&mut zoe, "Max comes in");
    assert!(max.handle.send_text(to_max, "hello").is_accepted());
    until_line(&mut zoe, "Max: hello");
    until_line(&mut max, "Max: hello");
    max.handle.close(to_max);
    max.until_closed(to_max);
    until_line(&mut zoe, "Max leaves");
    let ends = thread::spawn(move || zoe.until_closed(to_zoe));
    server.stop();
    assert_eq!(ends.join().unwrap(), "closed by the peer: 1001");
}

/// A browser: see `page/browser.mjs`.
struct Browser {
    process: Process,
    /// Its profile lies there.
    _folder: tempfile::TempDir,
}

impl Browser {
    /// `None`, with a note, if there is no browser here and the tests need none.
    fn start() -> Option<Browser> {
        let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !has("chromium") || !has("node") {
            let is_required = env::var_os("ESTAFETTE_PAGES").is_some_and(|value| value == "required");
            assert!(!is_required, "this needs chromium and node");
            eprintln!("SKIPPED: the page in a browser, which needs chromium and node");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/browser.mjs");
        let process = Process::start(Command::new("node").arg(script).env("TMPDIR", folder.path()));
        process.line("ready");
        Some(Browser { process, _folder: folder })
    }

    fn goto(&mut self, url: &str) {
        self.process.say(&format!("goto {url}"));
        self.process.line("done");
    }

    /// Waits until a script of one line returns a true value, and returns it as JSON.
    fn until(&mut self, script: &str) -> String {
        self.process.say(&format!("until {script}"));
        self.process.line("done")
    }

    /// Joins a room with a token.
    fn join(&mut self, token: &str, room: &str) {
        self.until(&format!(
            "(at('token').value = '{token}', at('room').value = '{room}', at('join').requestSubmit(), true)"
        ));
    }

    fn until_status(&mut self, status: &str) {
        self.until(&format!("at('status').textContent === '{status}'"));
    }

    /// Ends the browser, which removes its profile.
    fn quit(mut self) {
        drop(self.process.child.stdin.take());
        assert!(self.process.child.wait().unwrap().success());
    }
}

#[test]
fn the_page_talks_to_the_server() {
    let Some(mut browser) = Browser::start() else { return };
    let server = Running::start();
    let (mut max, to_max) = server.guest("pear");
    browser.goto(&server.page);
    browser.join("orange", "hall");
    browser.until_status("Not admitted.");
    browser.join("apple", "hall/b");
    browser.until_status("Not admitted.");
    browser.join("apple", "hall");
    browser.until_status("In hall.");
    until_line(&mut max, "Zoe comes in");
    assert_eq!(browser.until("socket.protocol"), "\"chat.v1\"");
    browser.until("(at('text').value = 'good day', at('say').requestSubmit(), true)");
    until_line(&mut max, "Zoe: good day");
    assert!(max.handle.send_text(to_max, "<b>good</b> evening").is_accepted());
    browser.until("at('lines').textContent.includes('Max: <b>good</b> evening\\n')");
    // The same page with another origin.
    let mut other = Browser::start().unwrap();
    other.goto(&server.page.replace("127.0.0.1", "localhost"));
    other.join("apple", "hall");
    other.until_status("Not admitted.");
    other.quit();
    let ends = thread::spawn(move || max.until_closed(to_max));
    server.stop();
    browser.until_status("Closed: 1001.");
    browser.quit();
    ends.join().unwrap();
}
