//! `rtrb`: a wait-free ring for one producer and one consumer, polled.

use std::future::{Future, ready};
use std::hint::spin_loop;
use std::io::{self, ErrorKind};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

use crate::channel::spec;

/// `thread/rtrb`.
#[derive(Debug)]
pub struct Rtrb;

impl Mechanism for Rtrb {
    fn spec(&self) -> Spec {
        spec("thread/rtrb", env!("LOCKED_RTRB"), "rtrb::RingBuffer, push and pop in a spin loop")
            .waits(&[Wait::Spin])
            .patterns(&[Pattern::PingPong, Pattern::Stream])
            .max_producers(Some(1))
            .tier(Tier::Overview)
    }
}

impl<P: Value> Transport<P> for Rtrb {
    type Tx = Sending<P>;
    type Rx = Receiving<P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<Sending<P>, Receiving<P>>> {
        Ends::pair(case, || {
            let (tx, rx) = RingBuffer::new(case.capacity);
            Ok((Sending(tx), Receiving(rx)))
        })
    }
}

/// The sending end.
pub struct Sending<P>(Producer<P>);

impl<P: Value> Sending<P> {
    #[inline(always)]
    fn push(&mut self, mut message: P) -> io::Result<()> {
        while let Err(PushError::Full(reply)) = self.0.push(message) {
            if self.0.is_abandoned() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            message = reply;
            spin_loop();
        }
        Ok(())
    }
}

impl<P: Value> Tx for Sending<P> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.push(P::make(source)))
    }
}

/// The receiving end.
pub struct Receiving<P>(Consumer<P>);

impl<P: Value> Receiving<P> {
    #[inline(always)]
    fn pop(&mut self) -> io::Result<P> {
        loop {
            if let Ok(message) = self.0.pop() {
                return Ok(message);
            }
            if self.0.is_abandoned() && self.0.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            spin_loop();
        }
    }
}

impl<P: Value> Rx for Receiving<P> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.pop().map(|message| message.check(verifier)))
    }
}
