//! Ends that limit the messages in flight by credit.

use std::io;

use estafette_contest_common::credit::{Refund, Spend};
use estafette_measure::{Generator, Rx, Tx, Verifier};

/// A sending end that takes credit before each message.
pub(super) struct CreditedTx<T> {
    pub(super) tx: T,
    pub(super) credit: Option<Spend>,
}

impl<T: Tx> Tx for CreditedTx<T> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        if let Some(credit) = &mut self.credit {
            credit.take()?;
        }
        self.tx.send(source)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tx.flush()
    }
}

/// A receiving end that returns credit after each message.
pub(super) struct CreditedRx<R> {
    pub(super) rx: R,
    pub(super) credit: Option<Refund>,
}

impl<R: Rx> Rx for CreditedRx<R> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.rx.recv(verifier)?;
        self.credit.as_mut().map_or(Ok(()), Refund::give)
    }
}
