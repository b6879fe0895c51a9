//! The node as a task of a tokio runtime.
#![cfg(feature = "tokio")]

mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::address;
use estafette_net::{AsyncNode, Endpoint, Event, Handle, Limits, Node, Outcome};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);
const MESSAGES: usize = 2000;

fn runtimes() -> [Runtime; 2] {
    let [mut one, mut many] = [Builder::new_current_thread(), Builder::new_multi_thread()];
    [one.enable_all().build().unwrap(), many.worker_threads(2).enable_all().build().unwrap()]
}

fn node<S>() -> AsyncNode<S> {
    AsyncNode::new(Node::new().unwrap()).unwrap()
}

/// The next event, which has to come in time.
async fn soon<S>(node: &mut AsyncNode<S>) -> Event<'_, S> {
    timeout(PATIENCE, node.next()).await.expect("it comes in time").unwrap().expect("nobody stops it")
}

/// A message; the lengths vary widely.
fn message(i: usize) -> Vec<u8> {
    (0..i * 37 % 9000 + 4).map(|at| (at ^ i) as u8).collect()
}

/// Echoes every message until the node is stopped.
async fn echo(mut node: AsyncNode<()>) {
    let handle = node.handle();
    while let Some(event) = node.next().await.unwrap() {
        if let Event::Message(from, message) = event {
            assert!(handle.send(from, &message).is_accepted());
        }
    }
}

/// Sends messages up to number `until`, as far as the queue accepts them.
fn send(handle: &Handle<()>, to: Endpoint, sent: &mut usize, until: usize) {
    while *sent < until.min(MESSAGES) && handle.send(to, &message(*sent)).is_accepted() {
        *sent += 1;
    }
}

#[test]
fn messages_are_echoed_in_any_runtime() {
    for scheme in ["tcp+msg", "unix+msg", "inproc+msg", "ws"] {
        for runtime in runtimes() {
            let folder = tempfile::tempdir().unwrap();
            runtime.block_on(async {
                let server = node();
                let stop = server.handle();
                let listener = stop.listen(address(scheme, &folder).as_str()).unwrap();
                let at = stop.local_address(listener).unwrap();
                let echo = tokio::spawn(echo(server));
                let mut client = node::<()>();
                let handle = client.handle();
                let endpoint = handle.connect(&at).unwrap();
                let (mut sent, mut seen) = (0, 0);
                while seen < MESSAGES {
                    // No more than the reverse direction can hold.
                    send(&handle, endpoint, &mut sent, seen + 50);
                    if let Event::Message(from, answer) = soon(&mut client).await {
                        assert_eq!(from, endpoint);
                        assert!(*answer == message(seen), "{scheme}");
                        seen += 1;
                    }
                }
                stop.stop();
                timeout(PATIENCE, echo).await.unwrap().unwrap();
            });
        }
    }
}

#[test]
fn a_cancelled_wait_loses_nothing() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let (mut receiver, mut sender) = (node::<()>(), node::<()>());
            let listener = receiver.handle().listen("tcp+msg://127.0.0.1:0").unwrap();
            let at = receiver.handle().local_address(listener).unwrap();
            let sending = tokio::spawn(async move {
                let handle = sender.handle();
                let endpoint = handle.connect(&at).unwrap();
                let mut sent = 0;
                while sent < MESSAGES {
                    send(&handle, endpoint, &mut sent, MESSAGES);
                    if sent < MESSAGES {
                        soon(&mut sender).await;
                    }
                    // Pauses, so that the receiver finds nothing now and then.
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
                handle.close(endpoint);
                while !matches!(soon(&mut sender).await, Event::Closed { .. }) {}
            });
            let (mut seen, mut cancelled, begun) = (0, 0, Instant::now());
            let reason = loop {
                assert!(begun.elapsed() < PATIENCE, "{seen} of {MESSAGES}");
                let mut ended = None;
                // Polled once and dropped, whatever it returns.
                let waits = {
                    let mut next = pin!(receiver.next());
                    match poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await {
                        Poll::Ready(event) => {
                            match event.unwrap().expect("nobody stops it") {
                                Event::Message(_, there) => {
                                    assert!(*there == message(seen));
                                    seen += 1;
                                }
                                Event::Closed { reason, .. } => ended = Some(reason.to_string()),
                                _ => {}
                            }
                            false
                        }
                        Poll::Pending => true,
                    }
                };
                if let Some(reason) = ended {
                    break reason;
                }
                if waits {
                    cancelled += 1;
                    yield_now().await;
                }
            };
            assert_eq!((seen, &reason[..]), (MESSAGES, "ended by the peer"));
            assert!(cancelled > 0);
            timeout(PATIENCE, sending).await.unwrap().unwrap();
        });
    }
}

#[test]
fn next_can_be_one_branch_of_select() {
    let [runtime, _] = runtimes();
    runtime.block_on(async {
        let mut node = node::<usize>();
        let handle = node.handle();
        let signals = std::thread::spawn(move || {
            for i in 0..MESSAGES {
                handle.signal(i);
                if i % 20 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        let (mut next, mut ticks, mut every) = (0, 0, tokio::time::interval(Duration::from_millis(1)));
        while next < MESSAGES {
            tokio::select! {
                biased;
                _ = every.tick() => ticks += 1,
                event = soon(&mut node) => match event {
                    Event::Signal(signal) => {
                        assert_eq!(signal, next);
                        next += 1;
                    }
                    other => panic!("{other:?}"),
                },
            }
        }
        assert!(ticks > 0);
        signals.join().unwrap();
    });
}

#[test]
fn deadlines_and_delayed_signals_work_without_other_events() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let mut limits = Limits::default();
            limits.idle = Some(Duration::from_millis(100));
            let mut node = AsyncNode::new(Node::<u32>::with_limits(limits).unwrap()).unwrap();
            let handle = node.handle();
            let begun = Instant::now();
            handle.signal_after(Duration::from_millis(600), 2);
            handle.signal_after(Duration::from_millis(300), 1);
            for expected in [1, 2] {
                assert!(matches!(soon(&mut node).await, Event::Signal(signal) if signal == expected));
                assert!(begun.elapsed() >= Duration::from_millis(300) * expected);
            }
            handle.listen("inproc://silent").unwrap();
            handle.connect("inproc://silent").unwrap();
            let reason = loop {
                if let Event::Closed { reason, .. } = soon(&mut node).await {
                    break reason.to_string();
                }
            };
            assert_eq!(reason, "idle for too long");
        });
    }
}

#[test]
fn a_node_can_be_stopped_from_any_thread_and_continues_when_awaited_again() {
    let [_, runtime] = runtimes();
    runtime.block_on(async {
        let mut node = node::<u32>();
        let handle = node.handle();
        let stop = std::thread::spawn(move || {
            handle.stop();
            handle
        });
        assert!(timeout(PATIENCE, node.next()).await.unwrap().unwrap().is_none());
        let handle = stop.join().unwrap();
        handle.signal(1);
        assert!(matches!(soon(&mut node).await, Event::Signal(1)));
    });
}

#[test]
fn a_busy_node_yields_to_other_tasks() {
    let [runtime, _] = runtimes();
    runtime.block_on(async {
        let mut node = node::<()>();
        let handle = node.handle();
        let others = Arc::new(AtomicBool::new(false));
        let turn = others.clone();
        let other = tokio::spawn(async move { turn.store(true, Ordering::SeqCst) });
        let mut count = 0;
        while !others.load(Ordering::SeqCst) {
            handle.signal(());
            soon(&mut node).await;
            count += 1;
            assert!(count < 1_000_000, "nobody else has a turn");
        }
        other.await.unwrap();
    });
}

#[test]
fn waiting_uses_no_cpu_time() {
    let [runtime, _] = runtimes();
    runtime.block_on(async {
        let mut node = node::<()>();
        let handle = node.handle();
        handle.listen("inproc+msg://quiet").unwrap();
        let endpoint = handle.connect("inproc+msg://quiet").unwrap();
        assert_eq!(handle.send(endpoint, b"first"), Outcome::Queued);
        while !matches!(soon(&mut node).await, Event::Message(..)) {}
        // The remaining events of the start.
        while timeout(Duration::from_millis(50), node.next()).await.is_ok() {}
        let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        let before = spent();
        assert!(timeout(Duration::from_millis(500), node.next()).await.is_err());
        // A busy-waiting node would spend half a second.
        assert!(spent() - before < Duration::from_millis(50), "{:?}", spent() - before);
    });
}

#[test]
fn events_of_many_connections_that_become_ready_at_once_all_arrive() {
    // More than one poll of epoll returns.
    const MANY: usize = 1500;
    let [runtime, _] = runtimes();
    runtime.block_on(async {
        let mut node = node::<()>();
        let handle = node.handle();
        handle.listen("inproc+msg://many").unwrap();
        let endpoints: Vec<_> = (0..MANY).map(|_| handle.connect("inproc+msg://many").unwrap()).collect();
        let (mut accepted, mut connected) = (Vec::new(), 0);
        while accepted.len() < MANY || connected < MANY {
            match soon(&mut node).await {
                Event::Accepted { endpoint, .. } => accepted.push(endpoint),
                Event::Connected(_) => connected += 1,
                other => panic!("{other:?}"),
            }
        }
        for endpoint in &endpoints {
            assert_eq!(handle.send(*endpoint, b"one"), Outcome::Sent);
        }
        let mut messages = 0;
        while messages < MANY {
            if let Event::Message(..) = soon(&mut node).await {
                messages += 1;
            }
        }
    });
}

#[test]
fn a_task_that_awaits_a_node_may_move_to_another_thread() {
    fn may_move<T: Future + Send>(_: &T) {}
    let [runtime, _] = runtimes();
    let _inside = runtime.enter();
    // The signal type need not be `Sync`.
    let mut node = node::<std::cell::Cell<u32>>();
    let next = node.next();
    may_move(&next);
}

/// The path at which the child process of the next test listens.
const LISTENS_AT: &str = "ESTAFETTE_TEST_LISTENS_AT";

#[tokio::test]
async fn a_program_that_stops_at_sigterm_leaves_no_socket_file() {
    if let Ok(path) = std::env::var(LISTENS_AT) {
        return until_sigterm(&path).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_program_that_stops_at_sigterm_leaves_no_socket_file", "--nocapture"]);
    let mut child = common::process::Process::start(command.env(LISTENS_AT, &path));
    child.line("listens");
    assert!(path.exists());
    let pid = rustix::process::Pid::from_child(&child.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.child.wait().unwrap().success());
    assert!(!path.exists());
}

async fn until_sigterm(path: &str) {
    let mut asked = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    let mut node = AsyncNode::new(Node::<()>::new().unwrap()).unwrap();
    let handle = node.handle();
    handle.listen(format!("unix://{path}")).unwrap();
    let stops = handle.clone();
    tokio::spawn(async move {
        asked.recv().await;
        stops.stop();
    });
    // A line of its own: the test harness has written a part of one.
    println!("\nlistens");
    assert!(node.next().await.unwrap().is_none());
}
