//! Topics on a cluster of three servers, each of which has a copy of the streams.

use std::time::Duration;

use crate::ground::{Ground, numbers};
use crate::kills::{THERE_AND_BACK, until_count};
use crate::runner::tests;
use crate::server::Server;

tests![hosts_start_while_a_cluster_forms, hosts_start_while_a_server_of_a_cluster_starts; ignored: a_server_of_a_cluster_is_killed, servers_of_a_cluster_are_killed_50_times];

fn ground(cluster: &[Server]) -> Ground {
    let urls: Vec<String> = cluster.iter().map(Server::url).collect();
    let replicated = THERE_AND_BACK.replace("prefix: t,", "prefix: t, stream: { replicas: 3 },");
    Ground::at(&replicated, &urls.join(", "))
}

fn hosts_start_while_a_cluster_forms() {
    let Some(mut cluster) = Server::start_forming_cluster() else { return };
    messages_arrive(&ground(&cluster), || Server::until_formed(&mut cluster));
}

/// A stream cannot have three replicas before.
fn hosts_start_while_a_server_of_a_cluster_starts() {
    let Some(mut cluster) = Server::start_cluster() else { return };
    cluster[2].stop();
    messages_arrive(&ground(&cluster), || {
        std::thread::sleep(Duration::from_millis(500));
        cluster[2].run();
    });
}

/// Starts the hosts, calls `after_start`, and waits for every message.
fn messages_arrive(ground: &Ground, after_start: impl FnOnce()) {
    const COUNT: usize = 100;
    ground.write("in.txt", numbers(COUNT));
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    after_start();
    ground.until_all("out.txt", numbers(COUNT));
    center.end();
    edge.end();
}

/// Two of three are a majority, so messages keep flowing without the third.
fn a_server_of_a_cluster_is_killed() {
    const COUNT: usize = 40_000;
    let Some(mut cluster) = Server::start_cluster() else { return };
    let ground = ground(&cluster);
    ground.write("in.txt", numbers(COUNT));
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    until_count(&ground, "out.txt", 2_000);
    cluster[0].kill();
    assert!(ground.lines("out.txt").len() < COUNT, "there is something left to do without it");
    ground.until_all("out.txt", numbers(COUNT));
    center.end();
    edge.end();
}

/// Kills one server after the other under load, and starts it again.
fn servers_of_a_cluster_are_killed_50_times() {
    const KILLS: usize = 50;
    let Some(mut cluster) = Server::start_cluster() else { return };
    let ground = ground(&cluster);
    let count = 2000 * (KILLS + 2);
    ground.write("in.txt", numbers(count));
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    for kill in 1..=KILLS {
        until_count(&ground, "out.txt", 2000 * kill);
        let server = &mut cluster[kill % 3];
        server.kill();
        // Without it.
        until_count(&ground, "out.txt", 2000 * kill + 1000);
        server.run();
        server.until_healthy();
    }
    ground.until_all("out.txt", numbers(count));
    center.until_good("nats:raw:all");
    center.end();
    edge.end();
}
