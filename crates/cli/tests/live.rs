//! `bench --live` in a terminal.

mod common;

use std::io::{Read, Write};
use std::process::Stdio;

use common::{Ground, PROGRAM, is_disturbed, undisturbed};

const BENCH: &str = "bench process/pipe process/unix-stream --live --pattern=ping-pong --size=64 --window=60ms \
                     --timeout=60s --out=out --no-report";
/// The terminal's alternate screen begins and ends.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// Runs a command line in a terminal, and its settings at the end. A shell that an interrupt would
/// end goes on, as an interactive shell does.
fn line(options: &str) -> String {
    format!("trap : INT; stty cols 130 rows 20; '{PROGRAM}' {BENCH} {options}; echo \"exit $?\"; stty -a")
}

#[test]
fn tables_converge_in_a_full_screen_and_are_printed_at_the_end() {
    let ground = Ground::new();
    let run = || {
        ground.remove_records();
        let mut script = ground.program("script", ["--quiet", "--command", &line("--rounds=1"), "/dev/null"]);
        let output = script.env("TERM", "xterm").output().expect("`script` of util-linux starts");
        String::from_utf8(output.stdout).expect("UTF-8").replace("\r\n", "\n")
    };
    let text = undisturbed(run, |text| text.contains("exit 0") || !is_disturbed(text));
    let (screen, rest) = text.split_once(LEAVE).unwrap_or_else(|| panic!("the screen is given back: {text:?}"));
    assert!(screen.contains(ENTER) && rest.contains(SHOW_CURSOR), "{text:?}");
    for words in ["limits", "capacities", "instances", "answer so far", "discarded"] {
        assert!(screen.contains(words), "no `{words}` on the screen: {screen:?}");
    }
    assert!(rest.contains("process · ping-pong · 64B") && rest.contains("\nrecord: out/"), "the tables: {rest}");
    assert!(rest.contains("exit 0"), "{rest}");
    assert!(rest.split_ascii_whitespace().any(|setting| setting == "echo"), "{rest}");
    ground.assert_clean();
}

#[test]
fn ctrl_c_gives_the_terminal_back() {
    let ground = Ground::new();
    let mut script = ground.program("script", ["--quiet", "--command", &line("--rounds=500"), "/dev/null"]);
    let mut script = script.env("TERM", "xterm").stdin(Stdio::piped()).spawn().expect("`script` of util-linux starts");
    let (mut input, mut output) = (script.stdin.take().expect("its input"), script.stdout.take().expect("its output"));
    let mut text = Vec::new();
    // The signal comes once the view is there.
    while !String::from_utf8_lossy(&text).contains(ENTER) {
        let mut buffer = [0; 4096];
        let count = output.read(&mut buffer).expect("the terminal can be read");
        assert_ne!(count, 0, "it ended: {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..count]);
    }
    input.write_all(b"\x03").expect("the terminal takes a key");
    output.read_to_end(&mut text).expect("the terminal can be read");
    script.wait().expect("it ends");
    let text = String::from_utf8_lossy(&text).replace("\r\n", "\n");
    let (_, rest) = text.split_once(LEAVE).unwrap_or_else(|| panic!("the screen is given back: {text:?}"));
    assert!(rest.contains(SHOW_CURSOR) && rest.contains("interrupted"), "{rest:?}");
    assert!(rest.split_ascii_whitespace().any(|setting| setting == "echo"), "{rest}");
    ground.assert_clean();
}

#[test]
fn without_a_terminal_it_is_refused_with_a_remedy() {
    let ground = Ground::new();
    let done = ground.run(BENCH.split_ascii_whitespace()).exits(2);
    let words =
        "estafette: --live draws on stderr, which is not a terminal: run it in a terminal, or leave out --live\n";
    assert_eq!((&*done.stderr, &*done.stdout), (words, ""));
    ground.assert_clean();
}
