//! A page in headless Chromium as a WebSocket client. It offers compression as every browser does.
//!
//! Without Chromium the tests are skipped with a message; with `ESTAFETTE_PAGES=required` they
//! fail.

mod common;

use std::env;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::process::Process;
use estafette_net::{Event, Kind, Node, Options, Reason, UpgradeResponse};

/// Exchanges messages with `SERVER`, and closes with a code of 4000 and what it saw, or 4001 and an
/// error.
const PAGE: &str = r#"<script>
const socket = new WebSocket('SERVER/chat?room=1', ['chat.v2', 'chat.v1']);
socket.binaryType = 'arraybuffer';
const answer = () => new Promise((done) => socket.onmessage = (event) => done(event.data));
async function talk() {
  const text = 'grün 漢字 🦀 '.repeat(1000);
  for (const message of ['', 'short', text, text]) {
    socket.send(message);
    if (await answer() !== message) throw new Error(`a text of ${message.length}`);
  }
  for (const length of [0, 1, 70_000, 1 << 20]) {
    socket.send(new Uint8Array(length).fill(7));
    const bytes = new Uint8Array(await answer());
    if (bytes.length !== length || bytes.some((byte) => byte !== 7)) throw new Error(`${length} bytes`);
  }
  return `${socket.protocol} ${socket.extensions}`;
}
socket.onopen = () => talk().then((seen) => socket.close(4000, seen), (error) => socket.close(4001, String(error)));
</script>"#;

/// Starts Chromium with a page, unless it is unavailable. The profile is in `folder`.
fn browse(page: &str, folder: &Path) -> Option<Process> {
    let found = Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        assert!(env::var("ESTAFETTE_PAGES").as_deref() != Ok("required"), "chromium is not here");
        // Written directly: the test harness shows macro output of failed tests only.
        stderr().write_all(b"skipped: chromium is not here; it is in Debian's chromium\n").unwrap();
        return None;
    }
    let file = folder.join("page.html");
    std::fs::write(&file, format!("<!doctype html><meta charset=\"utf-8\">{page}")).unwrap();
    let mut command = Command::new("chromium");
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stderr(Stdio::null());
    Some(Process::start(&mut command))
}

/// Echoes to the page, and returns the code and the reason with which it closes.
fn talk(options: &Options) -> Option<(Option<u16>, String)> {
    let mut node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let listener = handle.listen_with("ws://127.0.0.1:0", options).unwrap();
    let url = handle.local_address(listener).unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let _browser = browse(&PAGE.replace("SERVER", &url), folder.path())?;
    let (mut ended, begun) = (None, Instant::now());
    while ended.is_none() {
        node.poll(Some(Duration::from_millis(10)), |event| match event {
            Event::Message(from, message) => {
                let outcome = match message.kind() {
                    Kind::Text => handle.send_text(from, std::str::from_utf8(&message).unwrap()),
                    Kind::Binary => handle.send(from, &message),
                };
                assert!(outcome.is_accepted(), "{outcome:?}");
            }
            Event::Closed { reason: Reason::ClosedByPeer(close), .. } => ended = Some((close.code, close.reason)),
            Event::Accepted { .. } => {}
            other => panic!("{other:?}"),
        })
        .unwrap();
        assert!(begun.elapsed() < PATIENCE, "the page does not answer");
    }
    ended
}

/// The options of a listener for the page.
fn options() -> Options {
    Options::default().subprotocols(["chat.v1"]).on_upgrade(|request| {
        let is_page = request.origin() == Some("file://") || request.origin() == Some("null");
        match (request.path(), request.query(), is_page) {
            ("/chat", Some("room=1"), true) => UpgradeResponse::accept(),
            _ => UpgradeResponse::reject(403, "another page"),
        }
    })
}

#[test]
fn a_page_talks_to_our_server() {
    if let Some(ended) = talk(&options()) {
        assert_eq!(ended, (Some(4000), "chat.v1 ".to_owned()));
    }
}

#[cfg(feature = "deflate")]
#[test]
fn a_page_talks_to_our_server_with_compression() {
    if let Some(ended) = talk(&options().deflate(estafette_net::Deflate::default())) {
        assert_eq!(ended, (Some(4000), "chat.v1 permessage-deflate".to_owned()));
    }
}
