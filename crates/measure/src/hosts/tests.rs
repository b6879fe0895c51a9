//! Both sides of a session, each against another side that does not keep to the protocol.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::packet::{FromPeer, ToPeer};
use super::{Hello, HostLoad, OtherHost, SessionLink, frame, peer, remote, session_state};
use crate::Registry;
use crate::case::Role;
use crate::interrupt::Interrupt;
use crate::protocol::{Assignment, ToChild, ToCoordinator};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn link(stream: UnixStream) -> SessionLink {
    let [reader, writer] = [stream.try_clone().unwrap(), stream.try_clone().unwrap()];
    let close = move || drop(stream.shutdown(Shutdown::Both));
    SessionLink { reader: Box::new(reader), writer: Box::new(writer), close: Box::new(close) }
}

fn hello() -> Value {
    serde_json::to_value(Hello::of_this_host(None)).unwrap()
}

/// Sends these packets to a peer that has no mechanism, after a greeting. Returns how the session
/// ended, and what the peer sent.
fn against_peer(hello: &Value, packets: &[Value]) -> (Result<peer::SessionEnd>, Vec<FromPeer>) {
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
        assert_eq!(end.unwrap(), peer::SessionEnd::Complete);
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
        (child(json!({"go": {"start_ns": u64::MAX}})), "more than 60 s in the future"),
        (json!({"execute": "ls"}), "not a packet of a session"),
        (json!([[[]]]), "not a packet of a session"),
    ] {
        let error = against_peer(&hello(), &[packet]).0.unwrap_err();
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
}

#[test]
fn a_peer_answers_with_its_clock_until_the_session_ends() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        let ours = Hello::of_this_host(None).with_addresses(HERE, None);
        let greeted = peer::greet(link(theirs), &ours).unwrap();
        greeted.serve(&Registry::new(), HERE, &mut Interrupt::install().unwrap())
    });
    let greeted = remote::greet(link(ours), &Hello::of_this_host(None)).unwrap();
    let host = greeted.start(HERE, String::from("tcp://box:1")).unwrap();
    let (mut interrupt, mut request) = Interrupt::of_test();
    for _ in 0..2 {
        let offset = host.clock_offset(&mut interrupt).unwrap().unwrap();
        assert!(offset.ns.unsigned_abs() <= offset.error_ns, "it is the same clock: {offset:?}");
    }
    request.write_all(&[0]).unwrap();
    assert_eq!(host.clock_offset(&mut interrupt).unwrap(), None);
    drop(host);
    assert_eq!(serving.join().unwrap().unwrap(), peer::SessionEnd::Complete);
    let (_, answers) = against_peer(&hello(), &[json!({"open_clock": {}}), json!({"open_clock": {}})]);
    let [FromPeer::Hello(_), FromPeer::ClockPort { port: first }, FromPeer::ClockPort { port: second }] = answers[..]
    else {
        panic!("{answers:?}")
    };
    assert_eq!(first, second);
}

#[test]
fn packets_for_unknown_children_are_ignored_and_pings_are_answered() {
    let go = json!({"child": {"id": 9, "packet": {"go": {"start_ns": 0}}}});
    let packets =
        [go, json!({"kill": {"id": 9}}), json!({"probe": {}}), json!({"ping": {"number": 5}}), json!({"load": {}})];
    let (end, answers) = against_peer(&hello(), &[&packets[..], &[json!({"end": {}})]].concat());
    assert_eq!(end.unwrap(), peer::SessionEnd::Complete);
    let [FromPeer::Hello(_), FromPeer::Pong { number: 5 }, FromPeer::Load { load }] = answers[..] else {
        panic!("{answers:?}")
    };
    assert!(load.is_possible(), "{load:?}");
}

#[test]
fn another_version_or_allocator_is_refused_with_the_reason() {
    for (key, value, why) in [
        ("tool", json!("99.0.0"), "99.0.0"),
        ("session", json!(99), "99"),
        ("protocol", json!(99), "99"),
        ("allocator", json!("mimalloc"), "ESTAFETTE_ALLOCATOR"),
    ] {
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
        for packet in &packets {
            let _ = frame::write(&mut theirs, packet);
        }
        // No ping is sent after the end of the session.
        let pings = packets.iter().filter(|packet| packet.get("pong").is_some()).count();
        (0..pings).for_each(|_| drop(frame::read::<ToPeer>(&mut theirs)));
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
                    let load = json!({"steal": 0.25, "other_load": null});
                    let ended = json!({"status": 9, "stderr": "said", "strays": 2, "load": load});
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
    assert_eq!(process.load(), Some(HostLoad { steal: 0.25, other_load: None }));
    drop((process, host));
    peer.join().unwrap();
}

/// A session with a peer that answers pings, and each other packet with what `answer` returns.
fn against(answer: impl FnMut(ToPeer) -> Vec<Value> + Send + 'static) -> OtherHost {
    greeted(answer).start(HERE, String::from("tcp://box:1")).unwrap()
}

/// The same with a peer that answers nothing but pings, for which the coordinator does not wait
/// long.
fn against_silence() -> OtherHost {
    let mut greeted = greeted(|_| vec![]);
    greeted.answer_timeout = Duration::from_secs(5);
    greeted.start(HERE, String::from("tcp://box:1")).unwrap()
}

/// The same before the session begins.
fn greeted(mut answer: impl FnMut(ToPeer) -> Vec<Value> + Send + 'static) -> remote::GreetedPeer {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        while let Ok(Some(packet)) = frame::read::<ToPeer>(&mut theirs) {
            let answers = match packet {
                ToPeer::Hello(_) => {
                    let mut hello = hello();
                    hello["address"] = json!(HERE);
                    vec![json!({"hello": hello})]
                }
                ToPeer::Ping { number } => vec![json!({"pong": {"number": number}})],
                packet => answer(packet),
            };
            for answer in answers {
                let _ = frame::write(&mut theirs, &answer);
            }
        }
    });
    remote::greet(link(ours), &Hello::of_this_host(None)).unwrap()
}

#[test]
fn a_peer_that_does_not_answer_in_time_ends_the_session() {
    let host = against_silence();
    let error = format!("{:#}", host.other_load().unwrap_err());
    assert!(error.contains("did not answer a request within") && error.contains("check the network"), "{error}");
    // A late answer would belong to another request.
    assert_eq!(format!("{:#}", host.other_load().unwrap_err()), error);
}

#[test]
fn a_child_whose_start_or_end_is_not_confirmed_ends_the_session() {
    let assignment = || serde_json::from_value(assignment("consumer:0", "other-host")).unwrap();
    let host = against_silence();
    let (_socket, process) = host.start(assignment()).unwrap();
    let error = format!("{:#}", process.wait_until_begun().unwrap_err());
    assert!(error.contains("did not answer the start of a child"), "{error}");
    let host = against_silence();
    let (_socket, process) = host.start(assignment()).unwrap();
    process.kill();
    assert!(host.lost().unwrap().contains("did not answer the end of a child"), "{:?}", host.lost());
}

#[test]
fn the_reason_of_a_peer_that_ends_the_session_is_reported() {
    let host = against(|_| vec![json!({"refused": {"reason": "no address"}})]);
    let error = format!("{:#}", host.other_load().unwrap_err());
    assert!(error.contains("the peer ended it: no address"), "{error}");
    // A peer whose address belongs to another host.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let serving = thread::spawn(move || {
        let mut hello = Hello::of_this_host(None);
        hello.address = Some(HERE);
        let greeted = peer::greet(link(theirs), &hello)?;
        greeted.serve(&Registry::new(), elsewhere, &mut Interrupt::install()?)
    });
    let greeted = remote::greet(link(ours), &Hello::of_this_host(None)).unwrap();
    let host = greeted.start(HERE, String::from("tcp://box:1")).unwrap();
    let (mut interrupt, _request) = Interrupt::of_test();
    let error = host.clock_offset(&mut interrupt).unwrap_err();
    assert!(format!("{error:#}").contains("the peer ended it: "), "{error:#}");
    assert!(serving.join().unwrap().is_err());
}

#[test]
fn an_interrupt_ends_the_measurement_of_a_link_at_once() {
    // Its ports accept and answer nothing: the measurement would fail after some seconds.
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let packets = UdpSocket::bind((HERE, 0)).unwrap();
    let [tcp, udp] = [listener.local_addr().unwrap().port(), packets.local_addr().unwrap().port()];
    let (mut interrupt, mut request) = Interrupt::of_test();
    let host = against(move |_| vec![json!({"link_ports": {"ports": {"tcp": tcp, "udp": udp, "key": 1}}})]);
    let interrupting = thread::spawn(move || {
        // The measurement has begun.
        drop(listener.accept().unwrap());
        request.write_all(&[0]).unwrap();
    });
    assert_eq!(host.measure_link(&mut interrupt).unwrap(), None);
    interrupting.join().unwrap();
    // Before the peer answers, too.
    let host = against(|_| Vec::new());
    assert_eq!(host.measure_link(&mut interrupt).unwrap(), None);
}

#[test]
fn a_peer_that_answers_what_it_was_not_asked_is_given_up() {
    let host = against(|_| vec![json!({"pong": {"number": 0}}); 20]);
    let error = host.other_load().unwrap_err().to_string();
    assert!(error.contains("answered a question about its load") || error.contains("has ended"), "{error}");
    while host.lost().is_none() {
        thread::yield_now();
    }
    assert!(host.lost().unwrap().contains("not asked"), "{:?}", host.lost());
}

#[test]
fn an_answer_about_something_else_is_no_clock() {
    let host = against(|_| vec![json!({"pong": {"number": 0}})]);
    let (mut interrupt, _request) = Interrupt::of_test();
    let error = host.clock_offset(&mut interrupt).unwrap_err();
    assert!(error.to_string().contains("answered a question about its clock"), "{error}");
}

#[test]
fn an_impossible_load_of_the_other_host_is_an_error() {
    let of = |load: Value| against(move |_| vec![json!({"load": {"load": load}})]).other_load();
    assert_eq!(of(json!({"steal": 0.5, "other_load": 0.25})).unwrap(), Some(0.25));
    for load in [json!({"steal": 1.5, "other_load": null}), json!({"steal": 0.0, "other_load": -0.1})] {
        assert!(of(load.clone()).is_err(), "{load}");
    }
}

#[test]
fn a_child_of_the_other_host_cannot_fill_the_memory_of_the_coordinator() {
    let host = against(|packet| match packet {
        ToPeer::Start { id, .. } => {
            let publication = |n: usize| json!({"publish": {"name": n.to_string(), "value": "x".repeat(100_000)}});
            (0..100).map(|n| json!({"child": {"id": id, "packet": publication(n)}})).collect()
        }
        ToPeer::Kill { id } => {
            let load = json!({"steal": 0, "other_load": null});
            vec![json!({"ended": {"id": id, "ended": {"status": 9, "stderr": "", "strays": 0, "load": load}}})]
        }
        _ => Vec::new(),
    });
    let assignment = serde_json::from_value(assignment("consumer:0", "other-host")).unwrap();
    let (socket, _process) = host.start(assignment).unwrap();
    rustix::io::ioctl_fionbio(&socket, false).unwrap();
    let mut published = 0;
    let error = loop {
        match crate::protocol::receive::<ToCoordinator>(&socket).unwrap() {
            Some((ToCoordinator::Publish(_), _)) => published += 1,
            Some((ToCoordinator::Failed { error }, _)) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(error.contains("too much") && (10..60).contains(&published), "{published}: {error}");
}

/// A packet of each kind, as text.
fn valid_packets() -> Vec<String> {
    let child = |packet: Value| json!({"child": {"id": 7, "packet": packet}});
    let party = json!({"role": "consumer:0", "sent": 1, "messages": 2, "window_ns": 3,
        "latency": {"batch": 1, "counts": [[1, 2], [3, 4]]}});
    let report = json!({"report": {"parties": [party], "usage": {"cpu_ns": 1, "voluntary_switches": 2,
        "involuntary_switches": 3}}});
    let load = json!({"steal": 0.5, "other_load": 0.5});
    let packets = [
        json!({"hello": hello()}),
        json!({"pong": {"number": 1}}),
        start("consumer:0", "other-host"),
        child(report),
        child(json!({"publish": {"name": "a", "value": "127.0.0.1:1"}})),
        child(json!({"published": {"name": "a", "value": "127.0.0.1:1"}})),
        child(json!({"go": {"start_ns": 1}})),
        json!({"ended": {"id": 7, "ended": {"status": 0, "stderr": "", "strays": 0, "load": load}}}),
        json!({"load": {"load": load}}),
        json!({"link_ports": {"ports": {"tcp": 1, "udp": 2, "key": 3}}}),
        json!({"clock_port": {"port": {"port": 1, "key": 2}}}),
    ];
    packets.iter().map(Value::to_string).collect()
}

proptest! {
    /// Packets as a hostile side would make them: valid ones with numbers, texts and bytes
    /// replaced.
    #[test]
    fn no_packet_makes_a_side_panic(
        which in 0usize..11,
        changes in proptest::collection::vec((any::<u16>(), 0usize..12), 1..6),
    ) {
        let mut text = valid_packets()[which].clone().into_bytes();
        for (at, with) in changes {
            let with = ["", "0", "-1", "9", "1e308", "18446744073709551615", "null", "[]", "\"", "{", "}", "\u{1b}["][with];
            let at = usize::from(at) % text.len().max(1);
            let to = (at + 1).min(text.len());
            text.splice(at..to, with.bytes());
        }
        let framed = [&(text.len() as u32).to_be_bytes()[..], &text].concat();
        if let Ok(Some(packet)) = frame::read::<FromPeer>(&mut &framed[..]) {
            session_state::dispatch_in_test(packet);
        }
        if let Ok(Some(ToPeer::Start { assignment, .. })) = frame::read::<ToPeer>(&mut &framed[..]) {
            let _ = peer::check_assignment(&Registry::new(), &assignment.case, assignment.role, 2);
        }
    }
}
