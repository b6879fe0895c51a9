//! A sender of datagrams that got `Full` is notified once the socket is writable.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::backend::WritableSwitch;
use crate::datagrams::Socket;
use crate::event::Outcome;
use crate::transport::Datagrams;

/// A socket's free space in the kernel, and what epoll reports of it.
pub(crate) struct System {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    space: usize,
    /// Whether epoll reports writability.
    enabled: bool,
    /// The socket became writable since this was requested.
    edge: bool,
    /// Nobody sends any more.
    over: bool,
}

impl System {
    /// A datagram has left.
    fn free(&self) {
        let mut state = self.state.lock().unwrap();
        state.space += 1;
        state.edge |= state.enabled;
        self.changed.notify_one();
    }

    /// Starts or stops to report writability; reports it at once if there is space.
    pub(crate) fn set_writable(&self, wanted: bool) {
        let mut state = self.state.lock().unwrap();
        state.enabled = wanted;
        state.edge = wanted && state.space > 0;
        self.changed.notify_one();
    }

    fn end(&self) {
        self.state.lock().unwrap().over = true;
        self.changed.notify_one();
    }

    /// Waits as epoll does. Returns whether there is an edge.
    fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        while !state.edge && !state.over {
            state = self.changed.wait(state).unwrap();
        }
        std::mem::take(&mut state.edge)
    }
}

impl Datagrams for Arc<System> {
    fn send(&self, _: &[u8], _: Option<SocketAddr>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.space == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        state.space -= 1;
        Ok(())
    }
}

/// A sender finds the socket full. `rivals` other threads may use the space that becomes free.
/// Epoll reports writability always, or on request.
fn is_notified(rivals: usize, on_request: bool) {
    let state = Mutex::new(State { enabled: !on_request, ..State::default() });
    let system = Arc::new(System { state, changed: Condvar::new() });
    let socket = Socket::new(Box::new(system.clone()), 1);
    if on_request {
        socket.use_writable_switch(WritableSwitch(system.clone()));
    }
    let socket = Arc::new(socket);
    let node = {
        let (system, socket) = (system.clone(), socket.clone());
        thread::spawn(move || {
            while system.wait() {
                if socket.take_waiting() {
                    return true;
                }
            }
            false
        })
    };
    let rivals: Vec<_> = (0..rivals)
        .map(|_| {
            let (system, socket) = (system.clone(), socket.clone());
            thread::spawn(move || {
                if socket.send(b"", None) == Outcome::Sent {
                    system.free();
                }
            })
        })
        .collect();
    let freed = {
        let system = system.clone();
        thread::spawn(move || system.free())
    };
    let outcome = socket.send(b"", None);
    freed.join().unwrap();
    rivals.into_iter().for_each(|rival| rival.join().unwrap());
    if outcome == Outcome::Sent {
        // Whether the node reports something or not, it does not block.
        system.end();
        node.join().unwrap();
    } else {
        assert_eq!(outcome, Outcome::Full);
        assert!(node.join().unwrap());
    }
}

#[test]
fn a_sender_that_got_full_is_notified() {
    for on_request in [false, true] {
        loom::model(move || is_notified(0, on_request));
        crate::check_bounded(move || is_notified(1, on_request));
    }
}
