//! Servers and hosts that are killed under load: with at-least-once delivery nothing is lost.

use std::collections::BTreeSet;

use rustix::process::{Pid, Signal, kill_process};

use crate::delivery::from_file;
use crate::ground::{Ground, numbers, until};
use crate::runner::tests;
use crate::server::{JETSTREAM, Server};

tests![
    the_server_is_killed,
    a_host_in_the_middle_is_killed,
    functions_of_a_host_are_killed,
    a_host_that_receives_is_killed,
    a_host_that_sends_is_killed,
    a_message_is_kept_until_what_follows_from_it_has_left_the_host;
    ignored:
    the_server_is_killed_50_times,
    a_host_in_the_middle_is_killed_50_times,
    functions_of_a_host_are_killed_50_times,
    a_host_that_receives_is_killed_50_times,
    a_host_that_sends_is_killed_50_times,
];

/// From one host through a function of another one and back. All hosts write files.
pub(crate) const THERE_AND_BACK: &str = "
hosts: [edge, center]
nats: { servers: [SERVER], prefix: t, ack_wait: 1s }
functions:
  - { name: pass, on: center, module: { path: forward.wat }, input: { topic: raw }, output: { topics: [near] },
      restart: { max: 1000, within: 60min, initial_delay: 1ms, max_delay: 1ms } }
  - { name: on, on: center, module: { path: forward.wat }, input: { topic: near }, output: { topics: [done] },
      restart: { max: 1000, within: 60min, initial_delay: 1ms, max_delay: 1ms } }
sources:
  - { name: in, on: edge, file: { path: in.txt }, output: { topics: [raw] } }
sinks:
  - { name: out, on: edge, input: { topic: done }, file: { path: out.txt } }
topics:
  raw: { transport: nats, delivery: at-least-once, max_deliver: 255, capacity: 64KiB, max_message: 1KiB }
  near: { delivery: at-least-once, max_deliver: 255, capacity: 64KiB, max_message: 1KiB }
  done: { transport: nats, delivery: at-least-once, max_deliver: 255, capacity: 64KiB, max_message: 1KiB, batch: 256B }
";

/// Waits until a file has so many different lines. A host that is killed may leave half a line.
pub(crate) fn until_count(ground: &Ground, file: &str, count: usize) {
    until(|| {
        let lines: BTreeSet<_> = ground.lines(file).into_iter().collect();
        (lines.len() >= count).then_some(())
    });
}

fn until_superset(ground: &Ground, file: &str, count: usize) {
    until(|| {
        let lines: BTreeSet<_> = ground.lines(file).into_iter().collect();
        numbers(count).all(|number| lines.contains(&number)).then_some(())
    });
}

/// Kills the server again and again, while messages cross in both directions.
fn kill_the_server(kills: usize) {
    let Some(mut server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(THERE_AND_BACK, &server);
    let count = 2000 * (kills + 2);
    ground.write("in.txt", numbers(count));
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    for kill in 1..=kills {
        until_count(&ground, "out.txt", 2000 * kill);
        server.kill();
        edge.until_problem("nats:done:all", "NATS server");
        center.until_problem("nats:raw:all", "NATS server");
        server.run();
    }
    ground.until_all("out.txt", numbers(count));
    center.until_good("nats:raw:all");
    center.end();
    edge.end();
}

/// Kills the process of a host in the middle again and again. Its kills are no attempts of a
/// reader, so `max_deliver` is the default.
fn kill_the_middle(kills: usize) {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(&THERE_AND_BACK.replace(" max_deliver: 255,", ""), &server);
    let count = 2000 * (kills + 2);
    ground.write("in.txt", numbers(count));
    let edge = ground.run("edge");
    for kill in 1..=kills {
        let mut center = ground.spawn("center");
        until_count(&ground, "out.txt", 1000 * kill);
        center.kill();
    }
    let center = ground.run("center");
    ground.until_all("out.txt", numbers(count));
    center.end();
    edge.end();
}

/// Kills the processes of the functions of a host again and again.
fn kill_functions(kills: usize) {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(THERE_AND_BACK, &server);
    let count = 2000 * (kills + 2);
    ground.write("in.txt", numbers(count));
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    for kill in 1..=kills {
        until_count(&ground, "out.txt", 1000 * kill);
        let status = center.remote.status().unwrap();
        let pids = status.functions.iter().filter_map(|function| Pid::from_raw(function.pid? as i32));
        pids.for_each(|pid| {
            let _ = kill_process(pid, Signal::KILL);
        });
    }
    ground.until_all("out.txt", numbers(count));
    center.end();
    edge.end();
}

/// Kills the host that receives again and again.
fn kill_the_receiver(kills: usize) {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let topic = ", delivery: at-least-once, capacity: 64KiB, max_message: 1KiB";
    let ground = Ground::new(&from_file(topic), &server);
    let count = 2000 * (kills + 2);
    ground.write("in.txt", numbers(count));
    let edge = ground.run("edge");
    for kill in 1..=kills {
        let mut center = ground.spawn("center");
        until_count(&ground, "out.txt", 500 * kill);
        center.kill();
    }
    let mut center = ground.spawn("center");
    until_superset(&ground, "out.txt", count);
    center.kill();
    edge.finished();
}

/// Kills the host that sends again and again. It begins anew each time.
fn kill_the_sender(kills: usize) {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let topic = ", delivery: at-least-once, max_deliver: 255, capacity: 64KiB, max_message: 1KiB";
    let ground = Ground::new(&from_file(topic), &server);
    let count = 50_000;
    ground.write("in.txt", numbers(count));
    let center = ground.run("center");
    for _ in 0..kills {
        let before = ground.lines("out.txt").len();
        let mut edge = ground.spawn("edge");
        until(|| (ground.lines("out.txt").len() > before).then_some(()));
        edge.kill();
    }
    ground.spawn("edge").finished();
    ground.until_all("out.txt", numbers(count));
    center.end();
}

fn the_server_is_killed() {
    kill_the_server(3);
}

fn a_host_in_the_middle_is_killed() {
    kill_the_middle(7);
}

fn functions_of_a_host_are_killed() {
    kill_functions(3);
}

fn a_host_that_receives_is_killed() {
    kill_the_receiver(7);
}

fn a_host_that_sends_is_killed() {
    kill_the_sender(3);
}

fn the_server_is_killed_50_times() {
    kill_the_server(50);
}

fn a_host_in_the_middle_is_killed_50_times() {
    kill_the_middle(50);
}

fn functions_of_a_host_are_killed_50_times() {
    kill_functions(50);
}

fn a_host_that_receives_is_killed_50_times() {
    kill_the_receiver(50);
}

fn a_host_that_sends_is_killed_50_times() {
    kill_the_sender(50);
}

/// What a host has processed and not passed on is lost with its memory, so it must not be
/// acknowledged to the server.
fn a_message_is_kept_until_what_follows_from_it_has_left_the_host() {
    let users = |deny: &str| {
        let permissions = format!("permissions: {{ publish: {{ allow: \">\", deny: [{deny}] }} }}");
        format!("{JETSTREAM}authorization {{ users: [ {{ user: flow, password: secret, {permissions} }} ] }}\n")
    };
    let Some(server) = Server::start(&users("\"t.done\"")) else { return };
    let url = server.url().replace("nats://", "nats://flow:secret@");
    let ground = Ground::at(THERE_AND_BACK, &url);
    ground.write("in.txt", numbers(100));
    let edge = ground.run("edge");
    let center = ground.run("center");
    // Everything is processed, and lies in the ring to the server, which does not take it.
    center.until_problem("nats:done", "refuses");
    until(|| {
        let status = center.remote.status()?;
        let edge = |topic: &str| status.edges.iter().find(|edge| edge.topic == topic);
        let (first, last) = (edge("nats:raw:all")?, edge("done")?);
        (first.depth_messages == 0 && last.published_messages == 100 && last.depth_messages == 100).then_some(())
    });
    // It is stopped, and not drained.
    assert!(center.stop().left_in_topics() > 0);
    server.configure(&users(""));
    server.reload();
    let center = ground.run("center");
    ground.until_all("out.txt", numbers(100));
    center.end();
    edge.end();
}
