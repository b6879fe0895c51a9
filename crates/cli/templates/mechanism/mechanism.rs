//! How the channel is measured.

use std::io::{self, ErrorKind};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::spec::{Ownership, Wait};
use estafette_measure::{Ends, Generator, Mechanism, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier};

use crate::channel::{Receiver, Sender, channel};

/// `thread/my-mechanism`.
pub(crate) struct Mutexed;

impl Mechanism for Mutexed {
    fn spec(&self) -> Spec {
        // What it can play and what it promises. Each run checks the promises; `verify` checks all of them.
        Spec::new("thread/my-mechanism")
            .version(env!("CARGO_PKG_VERSION"))
            .implementation("a queue under a mutex, and two condition variables")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
            .payloads(&[PayloadKind::U64, PayloadKind::Bytes])
            .ownership(Ownership::Owned)
            .waits(&[Wait::Block])
            .max_producers(None)
    }
}

impl<P: Value> Transport<P> for Mutexed {
    type Tx = Sending<P>;
    type Rx = Receiving<P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Sending<P>, Receiving<P>>> {
        Ends::cloned(case, || {
            let (tx, rx) = channel(case.capacity);
            Ok((Sending(tx), Receiving(rx)))
        })
    }
}

#[derive(Clone)]
pub(crate) struct Sending<P>(Sender<P>);

impl<P: Value> Tx for Sending<P> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.0.send(P::make(source)).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

pub(crate) struct Receiving<P>(Receiver<P>);

impl<P: Value> Rx for Receiving<P> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.0.recv().ok_or(ErrorKind::UnexpectedEof)?.check(verifier);
        Ok(())
    }
}
