//! Length-prefixed messages with tokio-util's codec on a TCP connection of tokio.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Runtime;
use tokio_util::codec::{FramedRead, FramedWrite};

use super::delimited::{RecvEnd, SendEnd, codec};
use super::driven::{runtime, stream};
use super::multi_connection::{self, with_multi_sender};
use super::tcp_connection;
use super::tokio_multi_connection::{ChannelRecvEnd, Writer, runtime_for_writers, writers};

/// `network/tokio-framed`.
pub(super) struct TokioFramed;

impl Mechanism for TokioFramed {
    fn spec(&self) -> Spec {
        Spec::new("network/tokio-framed")
            .version(concat!("tokio ", env!("LOCKED_TOKIO"), ", tokio-util ", env!("LOCKED_TOKIO_UTIL")))
            .implementation("TCP, TCP_NODELAY, by tokio, LengthDelimitedCodec: send, or feed in a stream, and next")
            .patterns(&with_multi_sender(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex]))
            .max_producers(None)
            .ordering(Ordering::PerProducer)
            .ownership(Ownership::Owned)
            .between_hosts(true)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for TokioFramed {
    type Tx = Outgoing;
    type Rx = Incoming;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Outgoing, Incoming>> {
        let runtime = Arc::new(runtime()?);
        if multi_connection::has_multiple_senders(case) {
            return open_multi_sender(
                case,
                role,
                &runtime,
                tcp_connection::connections(multi_connection::connections(case, role), role, rendezvous)?,
            );
        }
        let (from, to) = stream(&runtime, tcp_connection::connected(role, rendezvous)?)?.into_split();
        let rx = Incoming::One(RecvEnd::new(Arc::clone(&runtime), from, case));
        Ok(Ends::both(role, Outgoing::One(SendEnd::new(runtime, to, case)), rx))
    }
}

/// Creates the ends of a party with several senders, on all its connections.
fn open_multi_sender(
    case: &Case,
    role: Role,
    runtime: &Arc<Runtime>,
    connections: Vec<TcpStream>,
) -> Result<Ends<Outgoing, Incoming>> {
    let read_half = |connection| {
        let (from, to) = stream(runtime, connection)?.into_split();
        // Dropping it would shut down the sending direction.
        to.forget();
        anyhow::Ok(from)
    };
    multi_connection::ends(
        case,
        role,
        connections,
        |connection| {
            let (_, to) = stream(runtime, connection)?.into_split();
            Ok(Outgoing::One(SendEnd::new(Arc::clone(runtime), to, case)))
        },
        |connection| {
            let runtime = runtime_for_writers()?;
            let frames = FramedWrite::new(stream(&runtime, connection)?, codec(case));
            Ok(writers(runtime, frames, case.producers, case.capacity).into_iter().map(Outgoing::Writer).collect())
        },
        |connection| Ok(Incoming::One(RecvEnd::new(Arc::clone(runtime), read_half(connection)?, case))),
        |connections| {
            let frames = connections.into_iter().map(|one| Ok(FramedRead::new(read_half(one)?, codec(case))));
            let frames = frames.collect::<Result<_>>()?;
            Ok(Incoming::All(ChannelRecvEnd::new(Arc::clone(runtime), frames, case.capacity)))
        },
    )
}

/// The sending end.
pub(super) enum Outgoing {
    /// An end with its own connection.
    One(SendEnd<OwnedWriteHalf>),
    /// An end that shares a connection.
    Writer(Writer),
}

impl Tx for Outgoing {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        match self {
            Outgoing::One(one) => one.send(source),
            Outgoing::Writer(writer) => writer.send(source),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Outgoing::One(one) => one.flush_frames(),
            // The writing task flushes by itself.
            Outgoing::Writer(_) => Ok(()),
        }
    }
}

/// The receiving end.
pub(super) enum Incoming {
    /// The end of one connection.
    One(RecvEnd<OwnedReadHalf>),
    /// The end of all connections.
    All(ChannelRecvEnd),
}

impl Rx for Incoming {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match self {
            Incoming::One(one) => one.recv_message(verifier),
            Incoming::All(all) => all.recv_message(verifier),
        }
    }
}
