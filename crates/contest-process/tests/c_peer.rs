//! The C baselines implement the child protocol and send exactly the messages of the Rust rows.

use std::convert::identity;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place, Role};
use estafette_measure::coordinator::{Instance, Interrupt, Scratch, Setup};
use estafette_measure::limits::available_cpus;
use estafette_measure::message::Faults;
use estafette_measure::protocol::PartyReport;
use estafette_measure::spec::{Runtime, Scope, Wait};
use estafette_measure::window::Window;
use estafette_measure::{Generator, Registry};

const PEER: &str = concat!(env!("OUT_DIR"), "/c-peer-pipe");
const SEED: u64 = 0x001D_2C3B_4A59_6877;
const SECRET: u64 = 0x0013_5724_68AC_E0BD;

/// An instance ends every process that its coordinator has left, so only one test at a time may
/// have child processes.
static CHILDREN: Mutex<()> = Mutex::new(());

#[test]
fn messages_equal_those_of_the_rust_generator() {
    let _alone = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    let max = (1 << 53) - 1;
    let streams = [
        (0, 0, 0, 3, 8),
        (1, 2, 0, 200, 1),
        (SEED, SECRET, 0, 70_000, 7),
        (SEED, SECRET, 5, 10, 9),
        (SEED, SECRET, 0, 10, 64),
        (max, max, 2047, 10, 100),
    ];
    for (seed, secret, producer, count, len) in streams {
        let numbers = [seed, secret, producer as u64, count, len as u64].map(|number| number.to_string());
        let printed = Command::new(PEER).arg("--vectors").args(numbers).output().unwrap();
        assert!(printed.status.success(), "{printed:?}");
        let mut next = Generator::new(seed, producer, len).with_secret(secret);
        let mut message = vec![0; len];
        let mut lines = 0;
        for (sequence, line) in String::from_utf8(printed.stdout).unwrap().lines().enumerate() {
            if sequence as u64 == count {
                next.end();
            }
            next.fill(&mut message);
            let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(line, hex, "message {sequence} of producer {producer}, {len} bytes, seed {seed}");
            lines += 1;
        }
        assert_eq!(lines, count + 1);
    }
}

/// Checks the test vectors in `docs/child-protocol.md`.
#[test]
fn the_documented_test_vectors_are_right() {
    let document = include_str!("../../../docs/child-protocol.md");
    let mut rows = 0;
    for row in document.lines().filter(|line| line.starts_with("| `0x")) {
        let mut columns = row.split('|').map(|column| column.trim().trim_matches('`')).skip(1);
        let mut column = || columns.next().unwrap();
        let mut hexadecimal = || u64::from_str_radix(column().trim_start_matches("0x"), 16).unwrap();
        let (seed, secret) = (hexadecimal(), hexadecimal());
        let (producer, which, len) = (column().parse().unwrap(), column(), column().parse().unwrap());
        let mut next = Generator::new(seed, producer, len).with_secret(secret);
        let (before, ends) = match which.strip_prefix("end after ") {
            Some(count) => (count.parse().unwrap(), true),
            None => (which.parse().unwrap(), false),
        };
        for _ in 0u64..before {
            next.word();
        }
        if ends {
            next.end();
        }
        let mut message = vec![0; len];
        next.fill(&mut message);
        let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(column().replace(' ', ""), hex, "{row}");
        rows += 1;
    }
    assert!(rows >= 5, "{rows} rows: has the table changed its form?");
}

#[test]
fn runs_both_patterns_in_windows_by_time_and_by_count() {
    let _alone = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    let registry = estafette_contest_process::register(Registry::new(), identity);
    let time = Window::Time { warmup_ns: 2_000_000, measure_ns: 10_000_000 };
    let count = Window::Count { warmup: 10, messages: 100 };
    let (mut scratch, mut interrupt) = (Scratch::new().unwrap(), Interrupt::install().unwrap());
    let bytes = |longest| [1, 7, 8, 9, longest].map(Payload::Bytes).to_vec();
    let programs = [
        ("process/pipe-c", bytes(65_537)),
        ("process/unix-stream-c", bytes(65_537)),
        // The longest message that systems allow by default.
        ("process/posix-mq-c", bytes(8_192)),
        ("process/shm-mutex-c", bytes(65_537)),
        ("process/eventfd-c", vec![Payload::None]),
    ];
    for (name, payloads) in programs {
        for pattern in [Pattern::PingPong, Pattern::Stream] {
            for (window, payload) in payloads.iter().flat_map(|payload| [(time, *payload), (count, *payload)]) {
                let entry = registry.get(name).unwrap();
                let setup = setup(name, pattern, payload, window);
                let what = format!("{} {window:?}", setup.case.cell);
                let measured = Instance::run(&**entry, &setup, &mut scratch, &mut interrupt)
                    .unwrap_or_else(|failure| panic!("{name}, {what}: {}", failure.text));
                assert_eq!(measured.faults, Faults::default(), "{name}, {what}");
                let party = |role| {
                    let mut all = measured.reports.iter().flat_map(|(_, report)| &report.parties);
                    all.find(|party| party.role == role).unwrap()
                };
                check(party(Role::Producer(0)), party(Role::Consumer(0)), pattern, window, &what);
            }
        }
    }
}

fn setup(name: &str, pattern: Pattern, payload: Payload, window: Window) -> Setup {
    let cell = Cell {
        scope: Scope::Process,
        pattern,
        payload,
        producers: 1,
        capacity: 64,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place: Place::OtherCore,
        load: Load::Saturated,
    };
    Setup {
        case: Case { mechanism: name.to_owned(), cell },
        window,
        seed: SEED,
        secret: SECRET,
        cpus: available_cpus(),
        timeout: Duration::from_secs(60),
        count_timeout: Duration::from_secs(60),
        unpaused_run_ns: 0,
        traced: false,
        other_host: None,
    }
}

fn check(producer: &PartyReport, consumer: &PartyReport, pattern: Pattern, window: Window, what: &str) {
    let received = consumer.received[0];
    assert_eq!((received.received, received.announced), (producer.sent, Some(producer.sent)), "{what}");
    match window {
        Window::Count { warmup, messages } => {
            assert_eq!((producer.sent, consumer.messages), (warmup + messages, messages), "{what}");
        }
        // Beside other programs, no message may arrive within the window.
        Window::Time { .. } => {
            assert!(consumer.window_ns > 0 || consumer.messages == 0, "{what}");
            assert!(consumer.messages <= received.received, "{what}");
        }
    }
    assert_eq!(producer.latency.is_some(), pattern == Pattern::PingPong, "{what}");
    if let Some(latency) = &producer.latency {
        assert_eq!(consumer.sent, producer.sent, "{what}");
        let timed: u64 = latency.counts.iter().map(|(_, count)| count).sum();
        // A round trip that took the whole window, beside other programs, is timed and does not count.
        let slept = matches!(window, Window::Time { .. }) && producer.messages == 0 && timed <= 1;
        assert!(slept || timed == producer.messages.div_ceil(latency.batch), "{what}: {timed} timed");
    }
}
