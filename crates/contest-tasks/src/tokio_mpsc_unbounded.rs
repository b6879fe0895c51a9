//! `tokio::sync::mpsc`, unbounded. Credit outside of the channel limits the messages in flight.

use estafette_measure::spec::Cancel;
use estafette_measure::{Spec, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::credit::{Refund, Spend, credit};
use estafette_contest_common::channel::{Channel, Outcome, TaskChannel, spec};

/// `task/tokio-mpsc-unbounded`.
pub(crate) struct TokioMpscUnbounded;

impl Channel for TokioMpscUnbounded {
    type Tx<P: Value> = (UnboundedSender<P>, Spend);
    type Rx<P: Value> = (UnboundedReceiver<P>, Refund);

    fn spec() -> Spec {
        let implementation = "tokio::sync::mpsc::unbounded_channel, capped by credit";
        spec("task/tokio-mpsc-unbounded", env!("LOCKED_TOKIO"), implementation).cancel(Cancel::Safe)
    }

    fn open<P: Value>(capacity: usize, senders: usize) -> (Self::Tx<P>, Self::Rx<P>) {
        let ((tx, rx), (spend, refund)) = (unbounded_channel(), credit(capacity, senders));
        ((tx, spend), (rx, refund))
    }
}

impl TaskChannel for TokioMpscUnbounded {
    async fn send<P: Value>((tx, spend): &mut Self::Tx<P>, message: P) -> impl Outcome<()> {
        spend.take().await;
        tx.send(message)
    }

    async fn recv<P: Value>((rx, refund): &mut Self::Rx<P>) -> impl Outcome<P> {
        let message = rx.recv().await;
        refund.give();
        message
    }
}
