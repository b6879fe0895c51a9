//! The node's thread sleeps when there is no work, and is woken when there is.

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::{model, thread};

use crate::asleep::Asleep;

/// The part of the library's `Shared` that matters here.
struct Shared {
    asleep: Asleep,
    stopped: AtomicBool,
    commands: Mutex<Vec<u8>>,
    /// The waker: it ends one wait, the current or the next.
    woken: Mutex<bool>,
    waker: Condvar,
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            asleep: Asleep::new(),
            stopped: AtomicBool::new(false),
            commands: Mutex::new(Vec::new()),
            woken: Mutex::new(false),
            waker: Condvar::new(),
        })
    }

    fn wake(&self) {
        if self.asleep.must_wake() {
            *self.woken.lock().unwrap() = true;
            self.waker.notify_one();
        }
    }

    fn command(&self, command: u8) {
        self.commands.lock().unwrap().push(command);
        self.wake();
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// As `Node::sleep`.
    fn sleep(&self) {
        self.asleep.prepare();
        let asked = !self.commands.lock().unwrap().is_empty() || self.stopped.load(Ordering::SeqCst);
        let mut woken = self.woken.lock().unwrap();
        while !asked && !*woken {
            woken = self.waker.wait(woken).unwrap();
        }
        *woken = false;
        drop(woken);
        self.asleep.awake();
    }
}

#[test]
fn a_sleeping_node_can_be_stopped() {
    model(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let other = thread::spawn(move || other.stop());
        while !shared.stopped.load(Ordering::SeqCst) {
            shared.sleep();
        }
        other.join().unwrap();
    });
}

#[test]
fn commands_of_two_threads_are_seen() {
    crate::check_bounded(|| {
        let shared = Shared::new();
        let others = [1, 2].map(|command| {
            let shared = shared.clone();
            thread::spawn(move || shared.command(command))
        });
        let mut seen = 0;
        while seen < 3 {
            shared.sleep();
            seen += shared.commands.lock().unwrap().drain(..).sum::<u8>();
        }
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn only_one_of_two_threads_wakes_the_node() {
    model(|| {
        let asleep = Arc::new(Asleep::new());
        asleep.prepare();
        let other = asleep.clone();
        let other = thread::spawn(move || u8::from(other.must_wake()));
        let here = u8::from(asleep.must_wake());
        assert_eq!(here + other.join().unwrap(), 1);
        assert!(!asleep.must_wake());
    });
}
