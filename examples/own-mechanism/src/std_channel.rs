//! The channel of the standard library, bounded, between threads.

use std::io::{self, ErrorKind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::spec::Ownership;
use estafette_measure::{Transport, Ends, Generator, Mechanism, Value, Rendezvous, Rx, Spec, Tx, Verifier};

pub struct StdChannel;

impl Mechanism for StdChannel {
    fn spec(&self) -> Spec {
        Spec::new("thread/std-channel")
            .implementation("std::sync::mpsc::sync_channel")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
            .payloads(&[PayloadKind::U64, PayloadKind::Bytes])
            .ownership(Ownership::Owned)
            .max_producers(None)
    }
}

impl<P: Value> Transport<P> for StdChannel {
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

impl<P: Value> Tx for Sending<P> {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.0.send(P::make(source)).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

pub struct Receiving<P>(Receiver<P>);

impl<P: Value> Rx for Receiving<P> {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.0.recv().map_err(|_| ErrorKind::UnexpectedEof)?.check(verifier);
        Ok(())
    }
}
