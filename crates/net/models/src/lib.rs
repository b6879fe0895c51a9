//! Models of what the threads around a node agree upon: loom runs every order of events, and every value each load may see.
//! Who is never woken, or never told, is a deadlock here. `RUSTFLAGS="--cfg loom" cargo test --release` in this folder runs them.
//!
//! What is modelled is the library's own: three of its files. What they stand on is made up here.
#![cfg(all(loom, test))]

#[path = "../../src/asleep.rs"]
mod asleep;
#[path = "../../src/datagrams.rs"]
#[allow(dead_code, reason = "the models send one datagram at a time")]
mod datagrams;
#[path = "../../src/line.rs"]
mod line;

mod line_of_senders;
mod room;
mod sleep;

/// Tries the orders in which threads that could go on are stopped three times at most: of three threads there are too many for
/// all to be tried. Loom's authors find two or three enough.
fn most(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// What `datagrams.rs` says of a message.
mod event {
    use std::io::ErrorKind;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Outcome {
        Sent,
        Full,
        TooLarge,
        Refused(#[allow(dead_code, reason = "no datagram is refused here")] ErrorKind),
    }
}

/// How `datagrams.rs` asks epoll to tell of room.
mod backend {
    use std::io;

    use loom::sync::Arc;

    use crate::room::System;

    pub(crate) struct Room(pub(crate) Arc<System>);

    impl Room {
        pub(crate) fn ask(&self, (): (), wanted: bool) -> io::Result<()> {
            self.0.ask(wanted);
            Ok(())
        }
    }
}

/// What `datagrams.rs` sends by.
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
