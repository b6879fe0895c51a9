//! Both sides of a session, each against another side that does not keep to the protocol.

use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};

use super::packet::{FromPeer, ToPeer};
use super::{Hello, Link, OtherHost, frame, peer, remote};
use crate::Registry;
use crate::case::Role;
use crate::coordinator::Interrupt;
use crate::protocol::{Assignment, ToChild, ToCoordinator};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn link(stream: UnixStream) -> Link {
    let [reader, writer] = [stream.try_clone().unwrap(), stream.try_clone().unwrap()];
    let close = move || drop(stream.shutdown(Shutdown::Both));
    Link { reader: Box::new(reader), writer: Box::new(writer), close: Box::new(close) }
}

fn hello() -> Value {
    serde_json::to_value(Hello::of_this_host(None)).unwrap()
}

/// Sends these packets to a peer that has no mechanism, after a greeting. Returns how the session ended, and what the
/// peer sent.
fn against_peer(hello: &Value, packets: &[Value]) -> (Result<peer::End>, Vec<FromPeer>) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        let greeted = peer::greet(link(theirs), &Hello::of_this_host(None))?;
        greeted.serve(&Registry::new(), HERE, &mut Interrupt::install()?)
    });
    frame::write(&mut ours, &json!({"hello": hello})).unwrap();
    for packet in packets {
        // The peer may have ended the session already.
        let _ = frame::write(&mut ours, packet);
    }
    ours.shutdown(Shutdown::Write).unwrap();
    let mut answers = Vec::new();
    while let Ok(Some(answer)) = frame::read(&mut ours) {
        answers.push(answer);
    }
    (serving.join().unwrap(), answers)
}

fn assignment(role: &str, place: &str) -> Value {
    json!({
        "protocol": crate::protocol::VERSION,
        "case": {"mechanism": "network/none", "cell": {"scope": "network", "pattern": "ping-pong", "payload": "64B",
            "producers": 1, "capacity": 64, "runtime": "thread", "wait": "block", "place": place}},
        "role": role, "window": {"time": {"warmup_ns": 1, "measure_ns": 1}}, "seed": 1, "secret": 2,
        "dir": "/etc", "address": "0.0.0.0", "cpus": []})
}

fn start(role: &str, place: &str) -> Value {
    json!({"start": {"id": 7, "assignment": assignment(role, place)}})
}

#[test]
fn a_peer_starts_nothing_but_consumers_of_its_own_mechanisms() {
    for (packet, why) in [
        (start("consumer:0", "other-host"), "no mechanism `network/none`"),
        (start("producer:0", "other-host"), "only consumers"),
        (start("consumer:1", "other-host"), "only consumers"),
        (start("all", "other-host"), "only consumers"),
        (start("consumer:0", "other-core"), "only cases between two hosts"),
    ] {
        let (end, answers) = against_peer(&hello(), &[packet]);
        assert_eq!(end.unwrap(), peer::End::Complete);
        let [
            FromPeer::Hello(_),
            FromPeer::Child { id: 7, packet: ToCoordinator::Failed { error } },
            FromPeer::Ended { id: 7, .. },
        ] = &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_peer_ends_a_session_that_breaks_the_protocol() {
    let child = |packet: Value| json!({"child": {"id": 7, "packet": packet}});
    for (packet, why) in [
        (json!({"hello": hello()}), "greeted twice"),
        (child(json!({"assignment": assignment("consumer:0", "other-host")})), "only its own host may send"),
        (json!({"execute": "ls"}), "not a packet of a session"),
        (json!([[[]]]), "not a packet of a session"),
    ] {
        let error = against_peer(&hello(), &[packet]).0.unwrap_err();
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
}

#[test]
fn packets_for_unknown_children_are_ignored_and_pings_are_answered() {
    let go = json!({"child": {"id": 9, "packet": {"go": {"start_ns": 0}}}});
    let (end, answers) =
        against_peer(&hello(), &[go, json!({"kill": {"id": 9}}), json!({"ping": {"number": 5}}), json!({"end": {}})]);
    assert_eq!(end.unwrap(), peer::End::Complete);
    assert!(matches!(answers[..], [FromPeer::Hello(_), FromPeer::Pong { number: 5 }]), "{answers:?}");
}

#[test]
fn another_version_is_refused_and_told_why() {
    for (key, value, why) in
        [("tool", json!("99.0.0"), "99.0.0"), ("session", json!(99), "99"), ("protocol", json!(99), "99")]
    {
        let mut other = hello();
        other[key] = value;
        let (end, answers) = against_peer(&other, &[]);
        let [FromPeer::Refused { reason }] = &answers[..] else { panic!("{answers:?}") };
        assert!(reason.contains(why) && reason.contains("both hosts"), "{reason}");
        assert!(end.is_err());
    }
}

/// Opens a session with a peer that sends these packets, and then closes.
fn against_coordinator(packets: Vec<Value>) -> Result<OtherHost> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let greeting: Option<ToPeer> = frame::read(&mut theirs).unwrap();
        assert!(matches!(greeting, Some(ToPeer::Hello(_))), "{greeting:?}");
        for packet in packets {
            let _ = frame::write(&mut theirs, &packet);
        }
        theirs.shutdown(Shutdown::Write).unwrap();
        while let Ok(Some(_)) = frame::read::<ToPeer>(&mut theirs) {}
    });
    remote::greet(link(ours), &Hello::of_this_host(None))?.start(HERE, String::from("tcp://box:1"))
}

fn pongs() -> Vec<Value> {
    (0..5).map(|number| json!({"pong": {"number": number}})).collect()
}

#[test]
fn a_coordinator_gives_up_on_what_is_no_peer() {
    let mut long = hello();
    long["tool"] = json!("x".repeat(1_000));
    let mut wrong = hello();
    wrong["format"] = json!("something");
    for (packets, why) in [
        (vec![], "without a greeting"),
        (vec![json!({"refused": {"reason": "busy"}})], "refuses the session: busy"),
        (vec![json!({"pong": {"number": 0}})], "does not speak"),
        (vec![json!({"hello": wrong})], "does not speak"),
        (vec![json!({"hello": long})], "more than 256 bytes"),
        (vec![json!({"hello": hello()}), json!({"pong": {"number": 9}})], "answered a ping"),
        (vec![json!({"hello": hello()})], "has ended: the other side closed the connection"),
    ] {
        let error = against_coordinator(packets).unwrap_err();
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
}

#[test]
fn a_child_is_lost_with_the_session_and_the_next_does_not_start() {
    let greeting = vec![json!({"hello": hello()})];
    let host = against_coordinator([greeting, pongs()].concat()).unwrap();
    while host.lost().is_none() {
        thread::yield_now();
    }
    let assignment: Assignment = serde_json::from_value(assignment("consumer:0", "other-host")).unwrap();
    assert_eq!(assignment.role, Role::Consumer(0));
    let error = host.start(assignment).unwrap_err();
    assert!(format!("{error:#}").contains("closed the connection"), "{error:#}");
}

#[test]
fn the_coordinator_sees_packets_of_a_child_and_its_end_in_order() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let peer = thread::spawn(move || {
        let mut started = None;
        loop {
            match frame::read(&mut theirs).unwrap() {
                Some(ToPeer::Hello(_)) => frame::write(&mut theirs, &json!({"hello": hello()})).unwrap(),
                Some(ToPeer::Ping { number }) => {
                    frame::write(&mut theirs, &json!({"pong": {"number": number}})).unwrap()
                }
                Some(ToPeer::Start { id, .. }) => {
                    // A child that nobody started; an address in a process of this host.
                    for (id, packet) in
                        [(id + 1, json!({"failed": {"error": "x"}})), (id, json!({"ready": {"exchange": 5}}))]
                    {
                        frame::write(&mut theirs, &json!({"child": {"id": id, "packet": packet}})).unwrap();
                    }
                    let ended = json!({"status": 9, "stderr": "said", "strays": 2});
                    started = Some((id, ended));
                }
                Some(ToPeer::Child { packet: ToChild::Done {}, .. }) => {
                    let (id, ended) = started.take().unwrap();
                    frame::write(&mut theirs, &json!({"ended": {"id": id, "ended": ended}})).unwrap();
                }
                Some(ToPeer::End {}) | None => return,
                other => panic!("{other:?}"),
            }
        }
    });
    let greeted = remote::greet(link(ours), &Hello::of_this_host(None)).unwrap();
    let host = greeted.start(HERE, String::from("tcp://box:1")).unwrap();
    assert_eq!(host.peer().address, "tcp://box:1");
    let assignment = serde_json::from_value(assignment("consumer:0", "other-host")).unwrap();
    let (socket, process) = host.start(assignment).unwrap();
    rustix::io::ioctl_fionbio(&socket, false).unwrap();
    let packet = crate::protocol::receive::<ToCoordinator>(&socket).unwrap();
    assert!(matches!(packet, Some((ToCoordinator::Ready { exchange: None }, _))), "{packet:?}");
    assert!(process.ended().is_none());
    crate::protocol::send(&socket, &ToChild::Done {}, &[]).unwrap();
    assert!(crate::protocol::receive::<ToCoordinator>(&socket).unwrap().is_none(), "the socket closes at the end");
    let ended = process.ended().map(std::os::unix::process::ExitStatusExt::into_raw);
    assert_eq!((ended, process.stderr(), process.strays()), (Some(9), String::from("said"), 2));
    drop((process, host));
    peer.join().unwrap();
}
