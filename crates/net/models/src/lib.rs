//! Loom models of how threads cooperate around a node. Loom runs every order of events, and every
//! value that each load may return. A missed wake-up or notification shows as a deadlock. Run them
//! in this folder with `RUSTFLAGS="--cfg loom" cargo test --release`.
//!
//! The code under test is three of the library's own files. Their dependencies are replaced by
//! stubs.
#![cfg(all(loom, test))]

#[path = "../../src/asleep.rs"]
mod asleep;
#[path = "../../src/counters.rs"]
#[allow(dead_code, reason = "the models read no counters")]
mod counters;
#[path = "../../src/datagrams.rs"]
#[allow(dead_code, reason = "the models send one datagram at a time")]
mod datagrams;
#[path = "../../src/line.rs"]
mod line;

mod line_of_senders;
mod room;
mod sleep;

/// Tries the orders with at most three preemptions. With three threads there are too many orders to
/// try all. Loom's authors find a bound of two or three sufficient.
fn check_bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A stub of what `datagrams.rs` uses.
mod event {
    use std::io::ErrorKind;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Outcome {
        Sent,
        Full,
        TooLarge,
        Closed,
        Refused(#[allow(dead_code, reason = "no datagram is refused here")] ErrorKind),
    }
}

/// A stub of what `datagrams.rs` uses to request writability.
mod backend {
    use std::io;

    use loom::sync::Arc;

    use crate::room::System;

    pub(crate) struct WritableSwitch(pub(crate) Arc<System>);

    impl WritableSwitch {
        pub(crate) fn set(&self, (): (), wanted: bool) -> io::Result<()> {
            self.0.set_writable(wanted);
            Ok(())
        }
    }
}

/// A stub of the socket that `datagrams.rs` uses.
mod transport {
    use std::io;
    use std::net::SocketAddr;

    pub(crate) trait Datagrams: Send + Sync {
        fn source(&self) {}

        fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<()>;

        fn send_run(&self, datagrams: &[u8], each: usize, to: Option<SocketAddr>) -> io::Result<usize> {
            self.send(datagrams, to).map(|()| each)
        }
    }
}
