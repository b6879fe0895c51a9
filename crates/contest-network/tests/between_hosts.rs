//! Mechanisms between two hosts: the ends listen at the addresses of their hosts, and share nothing
//! but published text.

mod two_hosts;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use estafette_measure::Registry;
use estafette_measure::admission::can_run;
use estafette_measure::case::{Case, Cell, Pattern, Place};
use estafette_measure::refusal::RefusalKind;

const PATTERNS: [Pattern; 4] = [Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::Connections];

fn registry() -> Registry {
    estafette_contest_network::register(Registry::new())
}

#[test]
fn be_a_child() {
    two_hosts::be_a_child(&registry());
}

#[test]
fn every_mechanism_listens_at_its_hosts_address_and_its_messages_arrive() {
    let addresses = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)].map(IpAddr::V4);
    let played = two_hosts::play_all(&registry(), addresses, &PATTERNS);
    assert!(played > 20, "{played} cases");
}

#[test]
fn addresses_of_ipv6_work() {
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if let Err(error) = TcpListener::bind((address, 0)) {
        eprintln!("skipped: this machine has no IPv6 on loopback: {error}");
        return;
    }
    let played = two_hosts::play_all(&registry(), [address; 2], &[Pattern::PingPong]);
    assert!(played > 10, "{played} cases");
}

#[test]
fn what_needs_one_host_is_refused() {
    let registry = registry();
    let refused = |name: &str, pattern| {
        let entry = registry.get(name).unwrap();
        can_run(&**entry, &two_hosts::case(name, pattern, 64), 2).unwrap_err()
    };
    for name in ["network/unix-framed-basic", "network/unix-framed-tuned", "network/unix-framed-estafette"] {
        assert_eq!(refused(name, Pattern::PingPong).kind, RefusalKind::Hosts, "{name}");
    }
    if registry.get("network/message-io-framed").is_some() {
        let why = refused("network/message-io-framed", Pattern::Stream).to_string();
        assert!(why.contains("credit"), "{why}");
    }
    // On one host it is as before.
    let case = two_hosts::case("network/message-io-framed", Pattern::Stream, 64);
    let case = Case { cell: Cell { place: Place::OtherCore, ..case.cell }, ..case };
    if let Some(entry) = registry.get(&case.mechanism) {
        can_run(&**entry, &case, 2).unwrap();
    }
}
