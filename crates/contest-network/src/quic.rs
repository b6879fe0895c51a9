//! QUIC with quinn: length-prefixed messages with tokio-util's codec, on one stream of
//! a connection.
//!
//! quinn sends and acknowledges in background tasks, which continue while the program does other
//! work. So they have a runtime with one worker on their party's core, like a program under
//! `#[tokio::main]` on one core.

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig};
use tokio::runtime::Builder;

use super::delimited::{RecvEnd, SendEnd};
use super::tls::{self, HOST};

/// `network/quic`.
pub(super) struct Quic;

impl Mechanism for Quic {
    fn spec(&self) -> Spec {
        Spec::new("network/quic")
            .version(concat!("quinn ", env!("LOCKED_QUINN")))
            .implementation("QUIC, one stream, LengthDelimitedCodec: send, or feed in a stream, and next")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .ownership(Ownership::Owned)
            .between_hosts(true)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for Quic {
    type Tx = SendEnd<SendStream>;
    type Rx = RecvEnd<RecvStream>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let runtime = Arc::new(Builder::new_multi_thread().worker_threads(1).enable_all().build()?);
        let (endpoint, connection, to, from) = runtime.block_on(async {
            match role {
                Role::Consumer(_) => accept(tls::server(rendezvous)?.try_into()?, rendezvous).await,
                _ => connect(tls::client(rendezvous)?.try_into()?, rendezvous).await,
            }
        })?;
        // Dropping these would discard messages in flight. They end with the process, which exits
        // after everything is received.
        mem::forget((Arc::clone(&runtime), endpoint, connection));
        let tx = SendEnd::new(Arc::clone(&runtime), to, case);
        Ok(Ends::both(role, tx, RecvEnd::new(runtime, from, case)))
    }
}

type Opened = (Endpoint, Connection, SendStream, RecvStream);

/// The consumer's side.
async fn accept(crypto: QuicServerConfig, rendezvous: &mut Rendezvous) -> Result<Opened> {
    let endpoint = Endpoint::server(ServerConfig::with_crypto(Arc::new(crypto)), (rendezvous.address(), 0).into())?;
    rendezvous.publish("address", &endpoint.local_addr()?.to_string())?;
    let connection = endpoint.accept().await.context("the endpoint closed before the producer connected")?.await?;
    let (to, mut from) = connection.accept_bi().await?;
    from.read_exact(&mut [0]).await?;
    Ok((endpoint, connection, to, from))
}

/// The producer's side.
async fn connect(crypto: QuicClientConfig, rendezvous: &mut Rendezvous) -> Result<Opened> {
    let address: SocketAddr = rendezvous.request("address")?.parse()?;
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let endpoint = Endpoint::client((any, 0).into())?;
    let connection = endpoint.connect_with(ClientConfig::new(Arc::new(crypto)), address, HOST)?.await?;
    let (mut to, from) = connection.open_bi().await?;
    // The other side sees a new stream only when data arrives on it.
    to.write_all(&[0]).await?;
    Ok((endpoint, connection, to, from))
}
