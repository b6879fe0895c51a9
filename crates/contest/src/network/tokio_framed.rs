//! Messages behind their length on a TCP connection of tokio's, by tokio-util's codec.

use std::sync::Arc;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Joins, Ownership};
use estafette_measure::{Carries, Ends, Mechanism, Raw, Rendezvous, Spec};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::delimited::{Receiving, Sending, ends};
use super::driven::{runtime, stream};
use super::tcp::connected;

/// `network/tokio-framed`.
pub(super) struct TokioFramed;

impl Mechanism for TokioFramed {
    fn spec(&self) -> Spec {
        Spec::new("network/tokio-framed")
            .version(concat!("tokio ", env!("LOCKED_TOKIO"), ", tokio-util ", env!("LOCKED_TOKIO_UTIL")))
            .stands_on(
                "TCP on 127.0.0.1, TCP_NODELAY, by tokio, LengthDelimitedCodec: send, or feed in a stream, and next",
            )
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .ownership(Ownership::Owned)
            .joins(Joins::Standard)
    }
}

impl Carries<Raw> for TokioFramed {
    type Tx = Sending<OwnedWriteHalf>;
    type Rx = Receiving<OwnedReadHalf>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let runtime = runtime()?;
        let (from, to) = stream(&runtime, connected(role, meet)?)?.into_split();
        Ok(ends(Arc::new(runtime), to, from, case, role))
    }
}
