//! The libraries of the scope `network` between two hosts, in builds that include them.

#[path = "../../contest-network/tests/two_hosts/mod.rs"]
#[allow(dead_code, reason = "the tests of estafette-contest-network use all of it")]
mod two_hosts;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use estafette_measure::Registry;
use estafette_measure::case::Pattern;

fn registry() -> Registry {
    estafette_contest_process::register_network_rows(Registry::new())
}

#[test]
fn be_a_child() {
    two_hosts::be_a_child(&registry());
}

#[test]
fn libraries_listen_at_their_hosts_address_and_their_messages_arrive() {
    let addresses = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)].map(IpAddr::V4);
    two_hosts::play_all(&registry(), addresses, &[Pattern::PingPong, Pattern::Stream, Pattern::Duplex]);
    let left_out: Vec<_> = registry()
        .iter()
        .map(|entry| entry.spec())
        .filter(|spec| !spec.between_hosts)
        .map(|spec| spec.name.clone())
        .collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn addresses_of_ipv6_work() {
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if let Err(error) = TcpListener::bind((address, 0)) {
        eprintln!("skipped: this machine has no IPv6 on loopback: {error}");
        return;
    }
    two_hosts::play_all(&registry(), [address; 2], &[Pattern::PingPong]);
}
