//! Sessions over TCP and ssh, and what goes wrong with them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::thread;

use rustix::process::{Signal, kill_process};

use crate::common::{Ground, PROGRAM, Running, wait_for};
use crate::{BENCH, Peer, TOKEN, bench, measured, record, run};

#[test]
fn a_round_trip_is_measured_and_the_record_has_both_hosts() {
    let (peer, ground) = (Peer::start(&[]), Ground::new());
    let patterns = "--pattern=ping-pong,stream,duplex";
    let done = measured(&ground, |window| bench(&ground, &peer.url, TOKEN, &[patterns, window]));
    assert!(done.stdout.contains("other-host") && done.stdout.contains("Between two hosts: "), "{}", done.stdout);
    let record = record(&ground);
    assert_eq!(record["peer"]["address"], peer.url);
    assert_eq!(record["peer"]["fingerprint"], record["fingerprint"]);
    assert!(record["peer"]["round_trip_ns"].as_u64() > Some(0));
    let measured: Vec<_> = record["instances"].as_array().unwrap().iter().collect();
    assert!(measured.len() >= 3 && measured.iter().all(|one| one["outcome"]["measured"].is_object()), "{measured:?}");
    assert!(!serde_json::to_string(&record).unwrap().contains(TOKEN));
    let page = fs::read_to_string(ground.record().with_extension("html")).unwrap();
    assert!(page.contains("<title>Passing messages between hosts: ") && page.contains(&peer.url), "{page}");
    let path = ground.record().display().to_string();
    let markdown = ground.run(["report", &path, "--markdown"]).exits(0).stdout;
    assert!(markdown.contains("Between two hosts: "), "{markdown}");
    ground.assert_clean();
    peer.interrupt().exits(130);
}

#[test]
fn a_wrong_token_and_none_are_refused_and_the_next_session_works() {
    let (peer, ground) = (Peer::start(&[]), Ground::new());
    let wrong = run(bench(&ground, &peer.url, &TOKEN.replace('0', "1"), &[])).exits(2);
    assert!(wrong.stderr.contains("refuses the token"), "{}", wrong.stderr);
    let none = run(ground.command(BENCH.iter().chain(&["--to", &peer.url]))).exits(2);
    assert!(none.stderr.contains("ESTAFETTE_TOKEN"), "{}", none.stderr);
    let short = run(bench(&ground, &peer.url, "short", &[])).exits(2);
    assert!(short.stderr.contains("openssl rand"), "{}", short.stderr);
    measured(&ground, |window| bench(&ground, &peer.url, TOKEN, &["--pattern=ping-pong", window]));
    assert!(peer.interrupt().exits(130).stderr.contains("it has a wrong token"));
}

#[test]
fn a_port_without_a_peer_is_an_error_with_a_remedy() {
    let ground = Ground::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    // Something answers, but is no peer.
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        // Something is there, and says nothing.
        listener.accept().unwrap()
    });
    let http = run(bench(&ground, &url, TOKEN, &[])).exits(2);
    assert!(http.stderr.contains("no Estafette peer answers there"), "{}", http.stderr);
    let silent = run(bench(&ground, &url, TOKEN, &[])).exits(2);
    assert!(silent.stderr.contains("does not answer in time"), "{}", silent.stderr);
    drop(answering.join().unwrap());
    let nothing = run(bench(&ground, &url, TOKEN, &[])).exits(2);
    assert!(nothing.stderr.contains("estafette peer --listen"), "{}", nothing.stderr);
    ground.assert_clean();
}

/// Starts a run that does not end by itself, and waits until it measures.
fn endless(ground: &Ground, peer: &Peer) -> Running {
    fs::write(ground.path("token"), TOKEN).unwrap();
    // A window in which messages arrive on a disturbed machine too.
    let more = ["--rounds=1000", "--pattern=ping-pong", "--window=2s", "--token-file=token", "--to", &peer.url];
    let mut running = Running::start(ground, &[&BENCH[..5], &more].concat());
    // A child of the peer: its session has begun to measure.
    wait_for("a child of the peer", || {
        assert!(!running.has_ended(), "the run ended before it measured: {}", running.stderr());
        (peer.ground.processes().len() > 1).then_some(())
    });
    running
}

#[test]
fn a_killed_peer_ends_the_run_with_the_reason() {
    let (peer, ground) = (Peer::start(&[]), Ground::new());
    let running = endless(&ground, &peer);
    kill_process(peer.running.pid(), Signal::KILL).unwrap();
    let done = running.end().exits(2);
    assert!(done.stderr.contains("the session with"), "{}", done.stderr);
    ground.assert_clean();
    wait_for("the end of the peer's children", || peer.ground.processes().is_empty().then_some(()));
}

#[test]
fn an_interrupt_here_ends_the_children_there() {
    let (peer, ground) = (Peer::start(&["--once"]), Ground::new());
    let running = endless(&ground, &peer);
    kill_process(running.pid(), Signal::INT).unwrap();
    running.end().exits(130);
    ground.assert_clean();
    peer.end().exits(0);
}

#[test]
fn an_interrupt_of_the_peer_ends_its_children_and_the_run() {
    let (peer, ground) = (Peer::start(&[]), Ground::new());
    let running = endless(&ground, &peer);
    kill_process(peer.running.pid(), Signal::INT).unwrap();
    peer.end().exits(130);
    running.end().exits(2);
    ground.assert_clean();
}

#[test]
fn a_second_coordinator_is_told_that_the_peer_is_busy() {
    let (peer, ground, other) = (Peer::start(&["--once"]), Ground::new(), Ground::new());
    let running = endless(&ground, &peer);
    let busy = run(bench(&other, &peer.url, TOKEN, &[])).exits(2);
    assert!(busy.stderr.contains("busy with another session"), "{}", busy.stderr);
    kill_process(running.pid(), Signal::INT).unwrap();
    running.end().exits(130);
    peer.end().exits(0);
}

/// A folder with a program `ssh` that runs the command here.
fn ssh(ground: &Ground, script: &str) -> String {
    let folder = ground.path("bin");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("ssh");
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn a_session_over_ssh_is_measured_and_no_user_is_recorded() {
    let ground = Ground::new();
    // The last argument is the command.
    let path = ssh(
        &ground,
        "echo \"$@\" > arguments; for last; do :; done\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$last\"",
    );
    let arguments = ["--to", "ssh://somebody@box:2222", "--peer-command", PROGRAM];
    measured(&ground, |window| {
        let mut command = ground.command(BENCH.iter().chain(&arguments).chain(&["--pattern=ping-pong", window]));
        command.env("PATH", &path);
        command
    });
    let arguments = fs::read_to_string(ground.path("arguments")).unwrap();
    assert!(arguments.contains("-p 2222 -- somebody@box "), "{arguments}");
    let record = record(&ground);
    assert_eq!(record["peer"]["address"], "ssh://box:2222");
    assert!(!serde_json::to_string(&record).unwrap().contains("somebody"));
    fs::remove_dir_all(ground.path("bin")).unwrap();
    ground.assert_clean();
}

#[test]
fn what_fails_at_ssh_is_explained() {
    for (script, expected) in
        [("exit 255", "ssh failed"), ("exit 127", "--peer-command"), ("echo Welcome", "not a packet of a session")]
    {
        let ground = Ground::new();
        let path = ssh(&ground, script);
        let mut command = ground.command(BENCH.iter().chain(&["--to=ssh://box"]));
        let done = run({
            command.env("PATH", path);
            command
        })
        .exits(2);
        assert!(done.stderr.contains(expected), "{script}: {}", done.stderr);
    }
}

#[test]
fn options_that_contradict_each_other_are_errors() {
    let ground = Ground::new();
    for (arguments, expected) in [
        (&["bench", "ipc", "--to=ssh://box"][..], "name the suite net"),
        (&["bench", "process/pipe", "--to=ssh://box"], "does not cross to another host"),
        (&["bench", "net", "--to=ssh://box", "--place=free"], "leave it out with --to"),
        (&["bench", "net", "--to=box"], "tcp://HOST:PORT"),
        (&["bench", "net", "--place=other-host"], "needs another host"),
        (&["ping", "network/tcp", "--place=other-host"], "needs another host"),
        (&["bench", "net", "--peer-command=x"], "--to"),
        (&["bench", "net", "--to=tcp://box:1", "--peer-command=x"], "for --to ssh://"),
        (&["bench", "network/tcp", "--pattern=same-thread", "--to=tcp://box:1"], "not measured between hosts"),
        (&["peer"], "--listen"),
        (&["peer", "--stdio"], "--peer-address"),
    ] {
        let mut command = ground.command(arguments);
        let done = run({
            command.env_remove("SSH_CONNECTION");
            command
        })
        .exits(2);
        assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
    }
}

#[test]
fn instances_between_hosts_are_measured_in_whole_windows() {
    let (peer, ground) = (Peer::start(&[]), Ground::new());
    let arguments = ["--pattern=stream", "--slice=2ms", "--json"];
    let done = measured(&ground, |window| bench(&ground, &peer.url, TOKEN, &[&arguments[..], &[window]].concat()));
    let record = done.json();
    // Whole windows, one after the other.
    assert!(record["instances"].as_array().unwrap().iter().all(|one| one["heat"].is_null()), "{record}");
    assert!(record.get("heats").is_none(), "{record}");
    peer.interrupt().exits(130);
}
