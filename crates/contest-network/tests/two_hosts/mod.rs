//! Runs cases as if their two ends were on two hosts: each child has its own address and its own
//! directory, and only text passes between them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place, Role};
use estafette_measure::clock::now_ns;
use estafette_measure::coordinator::Scratch;
use estafette_measure::protocol::{self, Assignment, Report, ToChild, ToCoordinator};
use estafette_measure::spec::{Loss, Runtime, Scope, Wait};
use estafette_measure::window::Window;
use estafette_measure::{Entry, LinkEstimate, Registry};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// The environment variable of a process that runs a child.
const CHILD: &str = "ESTAFETTE_TEST_CHILD";
/// How long a child may take for anything, beside other programs on slow cores.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// The window of a case in which every message arrives.
const COUNTED: Window = Window::Count { warmup: 5, messages: 40 };
/// The number of its messages.
const COUNT: u64 = 45;
/// The window of a case whose producer searches for the highest rate at which few messages are lost.
/// That takes time: its warm-up is as long as a consumer may be without a core on a busy machine,
/// because a producer that has no report by then fails.
const SEARCHING: Window = Window::Time { warmup_ns: 1_000_000_000, measure_ns: 20_000_000 };

/// Runs a child if this process was started as one; otherwise returns. Must be the test that is
/// called `be_a_child`.
pub(crate) fn be_a_child(registry: &Registry) {
    if std::env::var_os(CHILD).is_some() {
        estafette_measure::child::serve(registry);
    }
}

/// A case between two hosts, with one producer or connection if it is not `Connections`.
pub(crate) fn case(name: &str, pattern: Pattern, len: usize) -> Case {
    let cell = Cell {
        scope: Scope::Network,
        pattern,
        payload: Payload::Bytes(len),
        producers: if pattern == Pattern::Connections { 3 } else { 1 },
        capacity: 64,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place: Place::OtherHost,
        load: Load::Saturated,
    };
    Case { mechanism: name.to_owned(), cell }
}

/// One end of a case.
struct Host {
    role: Role,
    address: IpAddr,
    /// When it is dropped, the shared memory that libraries have named is removed too.
    _dir: Scratch,
    socket: OwnedFd,
    process: Child,
    report: Option<Report>,
}

impl Host {
    fn start(case: &Case, role: Role, address: IpAddr, window: Window) -> Host {
        let dir = Scratch::new().unwrap();
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = pair.unwrap();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "be_a_child", "--nocapture", "--quiet"])
            .env(CHILD, "1")
            .env("TMPDIR", dir.path())
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let parties = if let Role::Producer(_) = role { case.senders() } else { 1 };
        let assignment = Assignment {
            protocol: protocol::VERSION,
            case: case.clone(),
            role,
            window,
            seed: 7,
            secret: 8,
            dir: dir.path().to_owned(),
            address,
            cpus: vec![None; parties],
            tail_ns: 3_000_000,
            link: Some(LinkEstimate { round_trip_ns: 100_000, packet_loss: 0.0, rate_bytes_per_s: 1e9 }),
        };
        protocol::send(&socket, &ToChild::Assignment(Box::new(assignment)), &[]).unwrap();
        Host { role, address, _dir: dir, socket, process, report: None }
    }

    fn send(&self, packet: &ToChild) {
        protocol::send(&self.socket, packet, &[]).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a case: the consumer at the first address and the producer at the second. Returns their
/// reports.
///
/// # Panics
/// If a child fails, publishes a descriptor or an address that is not its own host's, or takes too
/// long.
pub(crate) fn play(entry: &dyn Entry, case: &Case, addresses: [IpAddr; 2], window: Window) -> Vec<(Role, Report)> {
    let what = format!("{} in {}", case.mechanism, case.cell);
    let at = |role| if let Role::Consumer(_) = role { addresses[0] } else { addresses[1] };
    let mut hosts: Vec<Host> =
        entry.mechanism().roles(case).into_iter().map(|role| Host::start(case, role, at(role), window)).collect();
    let (mut published, mut requests, mut ready, mut addressed) = (Vec::new(), Vec::new(), 0, false);
    let mut has_notified = false;
    while hosts.iter().any(|host| host.report.is_none()) {
        for index in readable(&hosts, &what) {
            let (role, address) = (hosts[index].role, hosts[index].address);
            let packet = protocol::receive(&hosts[index].socket).unwrap();
            let (packet, descriptors) = packet.unwrap_or_else(|| panic!("{what}: {role} has ended"));
            assert!(descriptors.is_empty(), "{what}: {role} sent descriptors with {packet:?}");
            match packet {
                ToCoordinator::Publish(publication) => {
                    if let Some(listening) = socket_address(&publication.value) {
                        assert_eq!(listening.ip(), address, "{what}: {role} published {publication:?}");
                        addressed = true;
                    }
                    published.push(publication);
                }
                ToCoordinator::Request { name } => requests.push((index, name)),
                ToCoordinator::Ready { .. } => ready += 1,
                ToCoordinator::Report(report) => hosts[index].report = Some(report),
                other => panic!("{what}: {role} sent {other:?}"),
            }
            if ready == hosts.len() {
                ready = 0;
                hosts.iter().for_each(|host| host.send(&ToChild::Go { start_ns: now_ns() + 1_000_000 }));
            }
        }
        // A server between the ends stops when these have reported.
        let is_broker = |host: &&Host| host.role == Role::Broker;
        if !has_notified && hosts.iter().all(|host| is_broker(&host) || host.report.is_some()) {
            has_notified = true;
            hosts.iter().filter(is_broker).for_each(|host| host.send(&ToChild::AllReported {}));
        }
        requests.retain(|(index, name)| match published.iter().find(|publication| publication.name == *name) {
            Some(publication) => {
                hosts[*index].send(&ToChild::Published(publication.clone()));
                false
            }
            None => true,
        });
    }
    assert!(addressed, "{what}: no address was published");
    hosts.iter().for_each(|host| host.send(&ToChild::Done {}));
    hosts.iter_mut().map(|host| (host.role, host.report.take().unwrap())).collect()
}

/// Waits until children that have not reported have sent packets. Returns their indices.
fn readable(hosts: &[Host], what: &str) -> Vec<usize> {
    let waiting: Vec<usize> = (0..hosts.len()).filter(|index| hosts[*index].report.is_none()).collect();
    let mut sockets: Vec<_> = waiting.iter().map(|index| PollFd::new(&hosts[*index].socket, PollFlags::IN)).collect();
    let events = poll(&mut sockets, Some(&PATIENCE)).unwrap();
    let missing: Vec<_> = waiting.iter().map(|index| hosts[*index].role).collect();
    assert!(events > 0, "{what}: nothing came from {missing:?} in {PATIENCE:?}");
    waiting
        .into_iter()
        .zip(&sockets)
        .filter(|(_, socket)| !socket.revents().is_empty())
        .map(|(index, _)| index)
        .collect()
}

/// The socket address at the end of a text such as `tcp://127.0.0.2:4000`,
/// `nats://user:password@127.0.0.2:4000` or `127.0.0.2:4000`.
fn socket_address(text: &str) -> Option<SocketAddr> {
    text.trim_end_matches('/').rsplit(['/', '@']).next()?.parse().ok()
}

/// Runs every pattern that mechanisms support between hosts, with the consumer at the first
/// address and the producer at the second. Returns the number of cases.
pub(crate) fn play_all(registry: &Registry, addresses: [IpAddr; 2], patterns: &[Pattern]) -> usize {
    let mut played = 0;
    for entry in
        registry.iter().filter(|entry| entry.spec().between_hosts && entry.mechanism().check_available().is_ok())
    {
        for pattern in patterns {
            for len in [64, 20_000] {
                let case = case(&entry.spec().name, *pattern, len);
                if estafette_measure::admission::can_run(&**entry, &case, 2).is_err() {
                    continue;
                }
                let may_lose = entry.spec().loss == Loss::BestEffort && *pattern == Pattern::Stream;
                let window = if may_lose { SEARCHING } else { COUNTED };
                let reports = play(&**entry, &case, addresses, window);
                check(may_lose, &case, &reports);
                played += 1;
            }
        }
    }
    played
}

/// Checks that every message has arrived undamaged. A mechanism that may lose messages may do so
/// where its producer does not wait for answers, but some must arrive.
fn check(may_lose: bool, case: &Case, reports: &[(Role, Report)]) {
    let parties = || reports.iter().flat_map(|(_, report)| &report.parties);
    let sent: u64 = parties().filter(|party| matches!(party.role, Role::Producer(_))).map(|party| party.sent).sum();
    let consumers = parties().filter(|party| matches!(party.role, Role::Consumer(_)));
    let received: u64 = consumers.flat_map(|party| &party.received).map(|count| count.received).sum();
    let what = format!("{} in {}", case.mechanism, case.cell);
    if may_lose {
        assert!((1..=sent).contains(&received), "{what}: {received} of {sent} messages arrived");
    } else {
        assert_eq!((sent, received), (COUNT, COUNT), "{what}");
    }
    for mut faults in parties().map(|party| party.faults) {
        if may_lose {
            faults.lost = 0;
        }
        assert!(faults.is_empty(), "{what}: {reports:?}");
    }
}
