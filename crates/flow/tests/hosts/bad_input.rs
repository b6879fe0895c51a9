//! Servers that are absent, that refuse, or that have something else: each a clear error.

use crate::delivery::from_file;
use crate::ground::{Ground, numbers};
use crate::server::{JETSTREAM, Server};

const AT_LEAST_ONCE: &str = ", delivery: at-least-once";

#[test]
fn at_least_once_needs_jetstream() {
    let Some(server) = Server::start("") else { return };
    let ground = Ground::new(&from_file(AT_LEAST_ONCE), &server);
    ground.write("in.txt", numbers(1));
    for host in ["edge", "center"] {
        let error = ground.run(host).ended().unwrap_err();
        assert!(error.contains("`raw`") && error.contains("has no JetStream") && error.contains("-js"), "{error}");
    }
}

#[test]
fn a_server_that_is_absent_at_the_start_is_waited_for() {
    let Some(mut server) = Server::start(JETSTREAM) else { return };
    server.kill();
    let ground = Ground::new(&from_file(AT_LEAST_ONCE), &server);
    ground.write("in.txt", numbers(100));
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    edge.until_problem("nats:raw", "cannot be reached");
    center.until_problem("nats:raw:all", "cannot be reached");
    server.run();
    ground.until_all("out.txt", numbers(100));
    edge.finished();
    center.until_good("nats:raw:all");
    center.end();
}

/// Users whose rights can be revoked: `deny` is of the user of both hosts.
fn users(deny: &str) -> String {
    format!(
        "{JETSTREAM}authorization {{ users: [ {{ user: flow, password: secret, permissions: {{ publish: {{ allow: \">\", \
         deny: [{deny}] }} }} }} ] }}\n"
    )
}

#[test]
fn wrong_credentials_are_an_error() {
    let Some(server) = Server::start(&users("")) else { return };
    let url = server.url().replace("nats://", "nats://flow:wrong@");
    let ground = Ground::at(&from_file(AT_LEAST_ONCE), &url);
    ground.write("in.txt", numbers(1));
    let error = ground.run("edge").ended().unwrap_err();
    assert!(error.contains("refuses the connection") && error.contains("nats.credentials"), "{error}");
    assert!(!error.contains("wrong"), "the password is not shown: {error}");
}

#[test]
fn a_missing_permission_is_an_error_that_names_it() {
    let Some(server) = Server::start(&users("\"$JS.API.STREAM.CREATE.>\"")) else { return };
    let url = server.url().replace("nats://", "nats://flow:secret@");
    let ground = Ground::at(&from_file(AT_LEAST_ONCE), &url);
    ground.write("in.txt", numbers(1));
    let error = ground.run("edge").ended().unwrap_err();
    assert!(error.contains("$JS.API.STREAM.CREATE.t_raw") && error.contains("grant it"), "{error}");
}

#[test]
fn a_revoked_permission_stops_the_sender_until_it_is_granted_again() {
    let Some(server) = Server::start(&users("")) else { return };
    let url = server.url().replace("nats://", "nats://flow:secret@");
    let yaml = from_file(AT_LEAST_ONCE).replace("file: { path: in.txt }", "timer: { every: 1ms, count: 3000 }");
    let ground = Ground::at(&yaml, &url);
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    crate::ground::until(|| (ground.lines("out.txt").len() > 100).then_some(()));
    server.configure(&users("\"t.raw\""));
    server.reload();
    let problem = edge.until_problem("nats:raw", "refuses");
    assert!(problem.contains("t.raw") && problem.contains("grant it"), "{problem}");
    server.configure(&users(""));
    server.reload();
    ground.until_all("out.txt", (0..3000).map(|tick| tick.to_string()));
    edge.finished();
    center.end();
}

#[test]
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

#[test]
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

#[test]
fn a_server_that_accepts_only_shorter_messages_is_an_error() {
    let Some(server) = Server::start("max_payload: 65536\n") else { return };
    let ground = Ground::new(&from_file(""), &server);
    ground.write("in.txt", numbers(1));
    let error = ground.run("edge").ended().unwrap_err();
    assert!(error.contains("65536") && error.contains("max_payload") && error.contains("`raw`"), "{error}");
}
