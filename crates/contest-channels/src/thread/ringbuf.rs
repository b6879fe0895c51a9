//! `ringbuf`: a single-producer, single-consumer ring, polled.

use std::hint::spin_loop;
use std::io::{self, ErrorKind};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, Rendezvous, Rx, Spec, Transport, Tx, Value, Verifier};
use ringbuf::traits::{Consumer as _, Observer as _, Producer as _, Split as _};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use estafette_contest_common::channel::spec;

/// `thread/ringbuf`.
pub(super) struct Ringbuf;

impl Mechanism for Ringbuf {
    fn spec(&self) -> Spec {
        spec("thread/ringbuf", env!("LOCKED_RINGBUF"), "ringbuf::HeapRb, try_push and try_pop in a spin loop")
            .waits(&[Wait::Spin])
            .tier(Tier::Overview)
            .patterns(&[Pattern::PingPong, Pattern::Stream])
            .max_producers(Some(1))
    }
}

impl<P: Value> Transport<P> for Ringbuf {
    type Tx = SendEnd<P>;
    type Rx = RecvEnd<P>;

    fn open(&self, case: &Case, _: Role, _: &mut Rendezvous) -> Result<Ends<SendEnd<P>, RecvEnd<P>>> {
        Ends::pair(case, || {
            let (tx, rx) = HeapRb::new(case.capacity).split();
            Ok((SendEnd(tx), RecvEnd(rx)))
        })
    }
}

/// The sending end.
pub(super) struct SendEnd<P>(HeapProd<P>);

impl<P: Value> SendEnd<P> {
    #[inline(always)]
    fn push(&mut self, mut message: P) -> io::Result<()> {
        while let Err(returned) = self.0.try_push(message) {
            if !self.0.read_is_held() {
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
pub(super) struct RecvEnd<P>(HeapCons<P>);

impl<P: Value> RecvEnd<P> {
    #[inline(always)]
    fn pop(&mut self) -> io::Result<P> {
        loop {
            if let Some(message) = self.0.try_pop() {
                return Ok(message);
            }
            if !self.0.write_is_held() && self.0.is_empty() {
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
