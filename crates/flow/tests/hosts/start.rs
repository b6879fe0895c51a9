//! Hosts that start while no server answers.

use std::net::{Ipv4Addr, TcpListener};

use crate::delivery::from_file;
use crate::ground::{Ground, numbers};
use crate::runner::tests;
use crate::server::{JETSTREAM, Server};

tests![
    a_host_that_waits_for_its_server_ends_at_once,
    a_server_that_answers_is_used_beside_others_that_do_not,
    many_servers_that_do_not_answer_are_tried_at_once,
];

/// Servers that accept connections and say nothing.
fn silent(count: usize) -> Vec<TcpListener> {
    (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect()
}

fn urls(servers: &[TcpListener]) -> Vec<String> {
    servers.iter().map(|it| format!("nats://{}", it.local_addr().unwrap())).collect()
}

const AT_LEAST_ONCE: &str = ", delivery: at-least-once";

/// It is asked to end before its first attempt can time out, and does not wait for that.
fn a_host_that_waits_for_its_server_ends_at_once() {
    let silent = silent(1);
    let ground = Ground::at(&from_file(AT_LEAST_ONCE), &urls(&silent)[0]);
    ground.write("in.txt", numbers(1));
    let edge = ground.run_and_end("edge");
    let summary = edge.finished();
    let connectors = &summary.status.connectors;
    assert!(connectors.iter().all(|it| it.problem.is_none() && it.sent_messages == 0), "{connectors:?}");
}

fn a_server_that_answers_is_used_beside_others_that_do_not() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let silent = silent(3);
    let mut servers = urls(&silent);
    servers.push(server.url());
    let ground = Ground::at(&from_file(AT_LEAST_ONCE), &servers.join(", "));
    ground.write("in.txt", numbers(100));
    ground.run("edge").finished();
    let center = ground.run("center");
    ground.until_all("out.txt", numbers(100));
    center.end();
}

/// One after the other, they would take several times as long as this test may.
fn many_servers_that_do_not_answer_are_tried_at_once() {
    let silent = silent(100);
    let ground = Ground::at(&from_file(AT_LEAST_ONCE), &urls(&silent).join(", "));
    ground.write("in.txt", numbers(1));
    let edge = ground.run("edge");
    edge.until_problem("nats:raw", "cannot be reached");
    edge.stop();
}
