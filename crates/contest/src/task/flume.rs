//! `flume`, bounded: a deque under a lock, and a queue of those who wait.

use std::io::{self, ErrorKind};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::executor::Executor;
use estafette_measure::spec::{Ownership, Runtime};
use estafette_measure::{Carries, Ends, Generator, Mechanism, Payload, Rendezvous, Rx, Spec, Tx, Verifier};
use flume::{Receiver, Sender, bounded};

/// `task/flume`.
#[derive(Debug)]
pub struct Flume;

impl Mechanism for Flume {
    fn spec(&self) -> Spec {
        Spec::new("task/flume")
            .version("0.12")
            .stands_on("flume::bounded, send_async and recv_async")
            .runtimes(&[Runtime::TokioMulti, Runtime::TokioCurrent])
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn])
            .payloads(&[PayloadKind::U64, PayloadKind::Bytes])
            .ownership(Ownership::Owned)
            .max_producers(None)
    }

    fn executor(&self, case: &Case) -> Result<Box<dyn Executor>> {
        crate::runtime::executor(case)
    }
}

impl<P: Payload> Carries<P> for Flume {
    type Tx = Sending<P>;
    type Rx = Receiving<P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Sending<P>, Receiving<P>>> {
        Ends::cloned(case, || {
            let (tx, rx) = bounded(case.capacity);
            Ok((Sending(tx), Receiving(rx)))
        })
    }
}

#[derive(Clone)]
/// The sending end.
pub struct Sending<P>(Sender<P>);

impl<P: Payload> Tx for Sending<P> {
    async fn put(&mut self, next: &mut Generator) -> io::Result<()> {
        self.0.send_async(P::make(next)).await.map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

/// The receiving end.
pub struct Receiving<P>(Receiver<P>);

impl<P: Payload> Rx for Receiving<P> {
    async fn get(&mut self, seen: &mut Verifier) -> io::Result<()> {
        let message = self.0.recv_async().await.map_err(|_| ErrorKind::UnexpectedEof)?;
        message.check(seen);
        Ok(())
    }
}
