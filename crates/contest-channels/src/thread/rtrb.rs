//! `rtrb`: a wait-free single-producer, single-consumer ring, polled.

use std::hint::spin_loop;
use std::io::{self, ErrorKind};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier};
use rtrb::{Consumer, Producer, PushError, RingBuffer};

use estafette_contest_common::channel::spec;

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
    type Tx = SendEnd<P>;
    type Rx = RecvEnd<P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<SendEnd<P>, RecvEnd<P>>> {
        Ends::pair(case, || {
            let (tx, rx) = RingBuffer::new(case.capacity);
            Ok((SendEnd(tx), RecvEnd(rx)))
        })
    }
}

/// The sending end.
pub struct SendEnd<P>(Producer<P>);

impl<P: Value> SendEnd<P> {
    #[inline(always)]
    fn push(&mut self, mut message: P) -> io::Result<()> {
        while let Err(PushError::Full(returned)) = self.0.push(message) {
            if self.0.is_abandoned() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            message = returned;
            spin_loop();
        }
        Ok(())
    }
}

impl<P: Value> Tx for SendEnd<P> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.push(P::make(source))
    }
}

/// The receiving end.
pub struct RecvEnd<P>(Consumer<P>);

impl<P: Value> RecvEnd<P> {
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

impl<P: Value> Rx for RecvEnd<P> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.pop().map(|message| message.check(verifier))
    }
}
