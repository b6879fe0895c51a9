//! The channel of the standard library, bounded, between threads.

use std::io::{self, ErrorKind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::spec::Ownership;
use estafette_measure::{Carries, Ends, Generator, Mechanism, Payload, Rendezvous, Rx, Spec, Tx, Verifier};

pub struct StdChannel;

impl Mechanism for StdChannel {
    fn spec(&self) -> Spec {
        Spec::new("thread/std-channel")
            .stands_on("std::sync::mpsc::sync_channel")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
            .payloads(&[PayloadKind::U64, PayloadKind::Bytes])
            .ownership(Ownership::Owned)
            .max_producers(None)
    }
}

impl<P: Payload> Carries<P> for StdChannel {
    type Tx = Sending<P>;
    type Rx = Receiving<P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Sending<P>, Receiving<P>>> {
        Ends::cloned(case, || {
            let (tx, rx) = sync_channel(case.capacity);
            Ok((Sending(tx), Receiving(rx)))
        })
    }
}

#[derive(Clone)]
pub struct Sending<P>(SyncSender<P>);

impl<P: Payload> Tx for Sending<P> {
    async fn put(&mut self, next: &mut Generator) -> io::Result<()> {
        self.0.send(P::make(next)).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

pub struct Receiving<P>(Receiver<P>);

impl<P: Payload> Rx for Receiving<P> {
    async fn get(&mut self, seen: &mut Verifier) -> io::Result<()> {
        self.0.recv().map_err(|_| ErrorKind::UnexpectedEof)?.check(seen);
        Ok(())
    }
}
