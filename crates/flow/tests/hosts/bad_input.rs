//! Servers that are absent, that refuse, or that have something else: each a clear error.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use estafette_flow::config::CheckedHost;

use crate::delivery::from_file;
use crate::ground::{Ground, numbers};
use crate::runner::tests;
use crate::server::{JETSTREAM, Server};

tests![
    at_least_once_needs_jetstream,
    at_least_once_refuses_old_servers,
    a_server_that_is_absent_at_the_start_is_waited_for,
    wrong_credentials_are_an_error,
    a_missing_permission_is_an_error_that_names_it,
    a_revoked_permission_stops_the_sender_until_it_is_granted_again,
    a_revoked_permission_to_subscribe_stops_both_ends_until_it_is_granted_again,
    a_revoked_permission_to_subscribe_at_most_once_stops_the_receiver_until_it_is_granted_again,
    a_stream_of_another_program_is_an_error,
    a_host_that_runs_already_is_an_error,
    a_server_that_accepts_only_shorter_messages_is_an_error,
    the_check_says_what_the_server_lacks_and_changes_nothing_there,
    a_whole_pipeline_of_several_hosts_does_not_run,
    the_host_that_runs_must_be_one_of_the_pipeline,
    files_of_another_host_need_not_exist,
    a_revoked_permission_is_shown_at_most_once_too,
];

const AT_LEAST_ONCE: &str = ", delivery: at-least-once";

fn at_least_once_needs_jetstream() {
    let Some(server) = Server::start("") else { return };
    let ground = Ground::new(&from_file(AT_LEAST_ONCE), &server);
    ground.write("in.txt", numbers(1));
    for host in ["edge", "center"] {
        let error = ground.run(host).ended().unwrap_err();
        assert!(error.contains("`raw`") && error.contains("has no JetStream") && error.contains("-js"), "{error}");
    }
}

/// Answers as an old server: it says its version, and that it is alive.
fn old_server() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = |client: TcpStream| {
        let about = "\"server_id\":\"old\",\"version\":\"2.9.10\",\"max_payload\":1048576,\"proto\":1,\"headers\":true";
        let _ = (&client).write_all(format!("INFO {{{about},\"jetstream\":true}}\r\n").as_bytes());
        for line in BufReader::new(&client).lines().map_while(Result::ok).filter(|line| line == "PING") {
            let _ = (&client).write_all(line.replace("PING", "PONG\r\n").as_bytes());
        }
    };
    thread::spawn(move || listener.incoming().flatten().for_each(|client| drop(thread::spawn(move || serve(client)))));
    format!("nats://127.0.0.1:{port}")
}

fn at_least_once_refuses_old_servers() {
    let ground = Ground::at(&from_file(AT_LEAST_ONCE), &old_server());
    ground.write("in.txt", numbers(1));
    for host in ["edge", "center"] {
        let error = ground.run(host).ended().unwrap_err();
        assert!(
            error.contains("`raw`") && error.contains("2.9.10") && error.contains("use 2.10.27 or newer"),
            "{error}"
        );
    }
    let missing = estafette_flow::missing_on_server(&ground.whole()).unwrap();
    assert!(missing.len() == 1 && missing[0].contains("use 2.10.27 or newer"), "{missing:?}");
}

fn a_server_that_is_absent_at_the_start_is_waited_for() {
    let Some(mut server) = Server::start(JETSTREAM) else { return };
    server.kill();
    let ground = Ground::new(&from_file(AT_LEAST_ONCE), &server);
    ground.write("in.txt", numbers(100));
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    edge.until_problem("nats:raw", "cannot be reached");
    let health = edge.health();
    assert!(health.starts_with("HTTP/1.1 503 ") && health.contains("`nats:raw`: the NATS server"), "{health}");
    center.until_problem("nats:raw:all", "cannot be reached");
    server.run();
    ground.until_all("out.txt", numbers(100));
    edge.finished();
    center.until_good("nats:raw:all");
    center.end();
}

/// The user of both hosts, who may not publish these subjects.
fn users(deny: &str) -> String {
    users_without(deny, "")
}

/// The user of both hosts, who may not publish or subscribe to these subjects.
fn users_without(publish: &str, subscribe: &str) -> String {
    let permission = |deny: &str| format!("{{ allow: \">\", deny: [{deny}] }}");
    let (publish, subscribe) = (permission(publish), permission(subscribe));
    format!(
        "{JETSTREAM}authorization {{ users: [ {{ user: flow, password: secret, permissions: {{ publish: {publish}, \
         subscribe: {subscribe} }} }} ] }}\n"
    )
}

fn wrong_credentials_are_an_error() {
    let Some(server) = Server::start(&users("")) else { return };
    let url = server.url().replace("nats://", "nats://flow:wrong@");
    let ground = Ground::at(&from_file(AT_LEAST_ONCE), &url);
    ground.write("in.txt", numbers(1));
    let error = ground.run("edge").ended().unwrap_err();
    assert!(error.contains("refuses the connection") && error.contains("nats.credentials"), "{error}");
    assert!(!error.contains("wrong"), "the password is not shown: {error}");
}

fn a_missing_permission_is_an_error_that_names_it() {
    let Some(server) = Server::start(&users("\"$JS.API.STREAM.CREATE.>\"")) else { return };
    let url = server.url().replace("nats://", "nats://flow:secret@");
    let ground = Ground::at(&from_file(AT_LEAST_ONCE), &url);
    ground.write("in.txt", numbers(1));
    let error = ground.run("edge").ended().unwrap_err();
    assert!(error.contains("$JS.API.STREAM.CREATE.t_raw") && error.contains("grant it"), "{error}");
}

fn a_revoked_permission_stops_the_sender_until_it_is_granted_again() {
    let Some(server) = Server::start(&users("")) else { return };
    let url = server.url().replace("nats://", "nats://flow:secret@");
    let yaml = from_file(AT_LEAST_ONCE).replace("file: { path: in.txt }", "timer: { every: 1ms, count: 10000 }");
    let ground = Ground::at(&yaml, &url);
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    crate::ground::until(|| (ground.lines("out.txt").len() > 100).then_some(()));
    server.configure(&users("\"t.raw\""));
    server.reload();
    let problem = edge.until_problem("nats:raw", "refuses");
    assert!(problem.contains("t.raw") && problem.contains("grant it"), "{problem}");
    server.configure(&users(""));
    server.reload();
    ground.until_all("out.txt", (0..10_000).map(|tick| tick.to_string()));
    edge.finished();
    center.end();
}

/// What the server answers comes by subscriptions too.
fn a_revoked_permission_to_subscribe_stops_both_ends_until_it_is_granted_again() {
    let Some(server) = Server::start(&users("")) else { return };
    let url = server.url().replace("nats://", "nats://flow:secret@");
    let yaml = from_file(AT_LEAST_ONCE).replace("file: { path: in.txt }", "timer: { every: 1ms, count: 10000 }");
    let ground = Ground::at(&yaml, &url);
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    crate::ground::until(|| (ground.lines("out.txt").len() > 100).then_some(()));
    server.configure(&users_without("", "\"_INBOX.>\""));
    server.reload();
    for problem in [edge.until_problem("nats:raw", "refuses"), center.until_problem("nats:raw:all", "refuses")] {
        assert!(problem.contains("_INBOX") && problem.contains("grant it"), "{problem}");
    }
    server.configure(&users(""));
    server.reload();
    ground.until_all("out.txt", (0..10_000).map(|tick| tick.to_string()));
    edge.finished();
    center.until_good("nats:raw:all");
    center.end();
}

fn a_revoked_permission_to_subscribe_at_most_once_stops_the_receiver_until_it_is_granted_again() {
    let Some(server) = Server::start(&users("")) else { return };
    let url = server.url().replace("nats://", "nats://flow:secret@");
    let yaml = from_file("").replace("file: { path: in.txt }", "timer: { every: 1ms }");
    let ground = Ground::at(&yaml, &url);
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    let received = || ground.lines("out.txt").len();
    crate::ground::until(|| (received() > 100).then_some(()));
    server.configure(&users_without("", "\"t.raw\""));
    server.reload();
    let problem = center.until_problem("nats:raw:all", "refuses");
    assert!(problem.contains("t.raw") && problem.contains("grant it"), "{problem}");
    server.configure(&users(""));
    server.reload();
    center.until_good("nats:raw:all");
    let before = received();
    crate::ground::until(|| (received() > before + 100).then_some(()));
    edge.end();
    center.end();
}

fn a_stream_of_another_program_is_an_error() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let stream = "{\"name\":\"t_raw\",\"subjects\":[\"other\"],\"num_replicas\":1}";
    let made = crate::client::Client::connect(server.port()).request("$JS.API.STREAM.CREATE.t_raw", stream);
    assert!(String::from_utf8_lossy(&made.payload).contains("\"created\""), "{made:?}");
    let ground = Ground::new(&from_file(AT_LEAST_ONCE), &server);
    ground.write("in.txt", numbers(1));
    let error = ground.run("edge").ended().unwrap_err();
    assert!(error.contains("`t_raw`") && error.contains("`nats.prefix`"), "{error}");
}

fn a_host_that_runs_already_is_an_error() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(&from_file(AT_LEAST_ONCE), &server);
    let center = ground.run("center");
    server.until_subscribed("t.%host.center", 1);
    let error = ground.run("center").ended().unwrap_err();
    assert!(error.contains("`center`") && error.contains("runs already"), "{error}");
    center.end();
    ground.run("center").end();
}

fn a_server_that_accepts_only_shorter_messages_is_an_error() {
    let Some(server) = Server::start("max_payload: 65536\n") else { return };
    let ground = Ground::new(&from_file(""), &server);
    ground.write("in.txt", numbers(1));
    let error = ground.run("edge").ended().unwrap_err();
    assert!(error.contains("65536") && error.contains("max_payload") && error.contains("`raw`"), "{error}");
}

fn the_check_says_what_the_server_lacks_and_changes_nothing_there() {
    let Some(mut server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(&from_file(AT_LEAST_ONCE), &server);
    ground.write("in.txt", numbers(1));
    let missing = || estafette_flow::missing_on_server(&ground.whole()).map_err(|error| format!("{error:#}"));
    for _ in 0..2 {
        let found = missing().unwrap();
        assert!(found.len() == 1 && found[0].contains("the stream `t_raw` does not exist yet"), "{found:?}");
    }
    ground.run("edge").finished();
    assert_eq!(missing(), Ok(Vec::new()));
    server.kill();
    server.configure("");
    server.run();
    let found = missing().unwrap();
    assert!(found.len() == 1 && found[0].contains("has no JetStream"), "{found:?}");
    server.kill();
    let error = missing().unwrap_err();
    assert!(error.contains("cannot be reached"), "{error}");
}

fn a_whole_pipeline_of_several_hosts_does_not_run() {
    let ground = Ground::at(&from_file(""), "nats://127.0.0.1:4222");
    ground.write("in.txt", numbers(1));
    let options = estafette_flow::Options { host_program: "unused".into(), drain_timeout: crate::ground::PATIENCE };
    let error = estafette_flow::Supervisor::new(ground.whole(), options).unwrap_err();
    assert!(error.to_string().contains("several hosts"), "{error}");
}

fn the_host_that_runs_must_be_one_of_the_pipeline() {
    let ground = Ground::at(&from_file(""), "nats://127.0.0.1:4222");
    ground.write("in.txt", numbers(1));
    for (host, message, help) in [
        (CheckedHost::Alone, "the pipeline runs on several hosts", "`--host NAME` with one of `edge`, `center`"),
        (
            CheckedHost::Named("centre"),
            "there is no host `centre`; did you mean `center`?",
            "the hosts are `edge`, `center`",
        ),
    ] {
        let checked = ground.checked(host);
        assert!(checked.pipeline.is_none());
        let [found] = checked.diagnostics.as_slice() else { panic!("{:?}", checked.diagnostics) };
        assert_eq!((found.line, found.message.as_str()), (2, message));
        assert!(found.help.contains(help), "{}", found.help);
    }
}

fn files_of_another_host_need_not_exist() {
    let yaml = from_file("").replace(
        "functions: []",
        "functions: [{ name: far, on: center, module: { path: absent.wasm }, input: { topic: raw, queue: far } }]",
    );
    let ground = Ground::at(&yaml, "nats://127.0.0.1:4222");
    ground.write("in.txt", numbers(1));
    assert!(ground.checked(CheckedHost::Named("edge")).is_ok());
    assert!(!ground.checked(CheckedHost::Named("center")).is_ok());
    assert!(!ground.checked(CheckedHost::All).is_ok());
}

fn a_revoked_permission_is_shown_at_most_once_too() {
    let Some(server) = Server::start(&users("")) else { return };
    let url = server.url().replace("nats://", "nats://flow:secret@");
    let yaml = from_file("").replace("file: { path: in.txt }", "timer: { every: 1ms }");
    let ground = Ground::at(&yaml, &url);
    let edge = ground.run("edge");
    // A server that reads its users again refuses a connection that is just being made.
    edge.until_received("nats:raw");
    server.configure(&users("\"t.raw\""));
    server.reload();
    edge.until_problem("nats:raw", "refuses");
    server.configure(&users(""));
    server.reload();
    edge.until_good("nats:raw");
    edge.end();
}
