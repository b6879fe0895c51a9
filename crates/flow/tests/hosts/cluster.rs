//! Topics on a cluster of three servers, each of which has a copy of the streams.

use crate::ground::{Ground, numbers};
use crate::kills::{THERE_AND_BACK, until_count};
use crate::runner::tests;
use crate::server::Server;

tests![
    servers_of_a_cluster_are_killed;
    ignored:
    servers_of_a_cluster_are_killed_50_times,
];

/// Kills one server after the other under load, and starts it again. Two of three are a majority, so messages keep
/// flowing, whichever leads the streams.
fn kill_servers_of_a_cluster(kills: usize) {
    let Some(mut cluster) = Server::start_cluster() else { return };
    let urls: Vec<String> = cluster.iter().map(Server::url).collect();
    let replicated = THERE_AND_BACK.replace("prefix: t,", "prefix: t, stream: { replicas: 3 },");
    let ground = Ground::at(&replicated, &urls.join(", "));
    let count = 2000 * (kills + 2);
    ground.write("in.txt", numbers(count));
    let (edge, center) = (ground.run("edge"), ground.run("center"));
    for kill in 1..=kills {
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

fn servers_of_a_cluster_are_killed() {
    kill_servers_of_a_cluster(3);
}

fn servers_of_a_cluster_are_killed_50_times() {
    kill_servers_of_a_cluster(50);
}
