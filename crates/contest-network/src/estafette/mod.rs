//! estafette-net's node with each of its transports: one node per process, driven by the thread
//! that uses it.

mod ends;
mod side;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Loss, Ordering, Tier, Wait};
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};
use estafette_net::{Address, Endpoint, Handle, Limits, Node, Options};

use self::ends::{RecvEnd, SendEnd};
use self::side::{Side, SideHandle};
use super::frames::{SPIN, batched};
use super::multi_connection::{self, with_multi_sender};
use super::{tls, udp};

/// `network/framed-estafette` and the other rows of estafette-net.
pub(super) struct Estafette {
    name: &'static str,
    implementation: &'static str,
    /// The scheme of its addresses.
    scheme: &'static str,
    /// Whether the row supports patterns with several senders.
    multi_sender: bool,
    tier: Tier,
}

pub(super) const TCP: Estafette = Estafette {
    name: "network/tcp-estafette",
    implementation: "estafette-net: tcp://, received in records of one length, a batch for a stream",
    scheme: "tcp",
    multi_sender: false,
    tier: Tier::Overview,
};

pub(super) const FRAMED: Estafette = Estafette {
    name: "network/framed-estafette",
    implementation: "estafette-net: tcp+msg://, a batch for a stream, one node for all connections",
    scheme: "tcp+msg",
    multi_sender: true,
    tier: Tier::Suite,
};

pub(super) const UNIX: Estafette = Estafette {
    name: "network/unix-framed-estafette",
    implementation: "estafette-net: unix+msg://, a batch for a stream, one node for all connections",
    scheme: "unix+msg",
    multi_sender: true,
    tier: Tier::Standard,
};

pub(super) const WS: Estafette = Estafette {
    name: "network/ws-estafette",
    implementation: "estafette-net: ws://, masked by the client, a batch for a stream",
    scheme: "ws",
    multi_sender: false,
    tier: Tier::Suite,
};

pub(super) const TLS: Estafette = Estafette {
    name: "network/tls-estafette",
    implementation: "estafette-net: tls+msg://, by rustls, a batch for a stream",
    scheme: "tls+msg",
    multi_sender: false,
    tier: Tier::Standard,
};

pub(super) const UDP: Estafette = Estafette {
    name: "network/udp-estafette",
    implementation: "estafette-net: udp://, a batch for a stream",
    scheme: "udp",
    multi_sender: false,
    tier: Tier::Suite,
};

impl Estafette {
    fn is_lossy(&self) -> bool {
        self.scheme == "udp"
    }
}

impl Mechanism for Estafette {
    fn spec(&self) -> Spec {
        let spec = Spec::new(self.name)
            .version(env!("LOCKED_ESTAFETTE_NET"))
            .implementation(self.implementation)
            .waits(&[Wait::Block, Wait::Adaptive])
            .between_hosts(self.scheme != "unix+msg")
            .tier(self.tier);
        if self.is_lossy() {
            let spec = spec.patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::SameThread]);
            return spec.max_message(udp::MAX_DATAGRAM).ordering(Ordering::Unordered).loss(Loss::BestEffort);
        }
        let patterns = [Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::SameThread];
        if self.multi_sender {
            let spec = spec.max_producers(None).ordering(Ordering::PerProducer);
            return spec.patterns(&with_multi_sender(&patterns));
        }
        spec.patterns(&patterns)
    }
}

impl Transport<Raw> for Estafette {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let node = new_node(case)?;
        let handle = node.handle();
        let mut side = Box::new(Side::new(node, self.is_lossy().then(|| udp::recv_timeout(case))));
        let connections = multi_connection::connections(case, role);
        if !matches!(role, Role::Producer(_)) {
            self.listen(&handle, case, rendezvous)?;
        }
        let mut peers = Vec::new();
        if !matches!(role, Role::Consumer(_)) {
            peers = self.connect(&handle, case, connections, rendezvous)?;
            side.set_peer(peers[0]);
        }
        if !self.is_lossy() {
            let has_both_ends = case.pattern == Pattern::SameThread;
            side.wait_until_connected(if has_both_ends { 2 } else { connections })?;
            side.expect_connections(connections);
        }
        match (case.pattern, role) {
            (Pattern::Writers, Role::Producer(_)) => writers(side, &handle, case),
            (Pattern::Connections, Role::Producer(_)) => {
                let len = case.payload.len();
                let sender = |(peer, side)| SendEnd::new(side, handle.clone(), len).batched(false).to(peer);
                Ok(Ends::many(peers.into_iter().zip(SideHandle::shared(side)).map(sender), []))
            }
            _ => Ok(self.party_ends(side, handle, case, role)),
        }
    }
}

/// Creates a node whose limits admit the case's messages.
fn new_node(case: &Case) -> Result<Node<()>> {
    let len = case.payload.len();
    let mut limits = Limits::default();
    limits.message = limits.message.max(len);
    limits.unfinished = limits.unfinished.max(2 * len);
    let node = Node::with_limits(limits)?;
    Ok(if case.wait == Wait::Adaptive { node.spin(SPIN) } else { node })
}

impl Estafette {
    /// Listens at a new address, and publishes it.
    fn listen(&self, handle: &Handle, case: &Case, rendezvous: &mut Rendezvous) -> Result<()> {
        let address = match self.scheme {
            "unix+msg" => format!("unix+msg://{}", rendezvous.dir().join("socket").display()),
            scheme => format!("{scheme}://{}", SocketAddr::new(rendezvous.address(), 0)),
        };
        let options = match self.scheme {
            "udp" => Options::default().buffer(udp::buffer(case)),
            "tls+msg" => Options::default().tls_server(Arc::new(tls::server(rendezvous)?)),
            "tcp" => Options::default().records(case.payload.len()),
            _ => Options::default(),
        };
        let listener = handle.listen_with(address.as_str(), &options)?;
        let address = handle.local_address(listener).context("the listener's address")?;
        rendezvous.publish("address", &address.to_string())
    }

    /// Starts `count` connections to the published address.
    fn connect(
        &self,
        handle: &Handle,
        case: &Case,
        count: usize,
        rendezvous: &mut Rendezvous,
    ) -> Result<Vec<Endpoint>> {
        let address: Address = rendezvous.request("address")?.parse()?;
        let options = match self.scheme {
            "tls+msg" => Options::default().tls_client(Arc::new(tls::client(rendezvous)?)),
            "tcp" => Options::default().records(case.payload.len()),
            _ => Options::default(),
        };
        (0..count).map(|_| Ok(handle.connect_with(address.clone(), &options)?)).collect()
    }

    /// Creates the ends of one party with at most one sender.
    fn party_ends(&self, mut side: Box<Side>, handle: Handle, case: &Case, role: Role) -> Ends<SendEnd, RecvEnd> {
        let (tx, rx) = match (case.pattern, role) {
            (Pattern::Duplex, _) => {
                let progress = side.share_with_senders(1);
                (Some(SideHandle::remote(&progress)), Some(SideHandle::Owned(side)))
            }
            (Pattern::PingPong | Pattern::SameThread, _) => {
                let mut handles = SideHandle::shared(side);
                (handles.next(), handles.next())
            }
            (_, Role::Consumer(_)) => (None, Some(SideHandle::Owned(side))),
            _ => (Some(SideHandle::Owned(side)), None),
        };
        let tx = tx.map(|side| match SendEnd::new(side, handle, case.payload.len()) {
            tx if batched(case) => tx.batched(self.is_lossy()),
            tx => tx,
        });
        let role = if case.pattern == Pattern::SameThread { Role::Producer(0) } else { role };
        Ends(vec![PartyEnds { role, tx, rx: rx.map(RecvEnd::new) }])
    }
}

/// Creates all senders on one connection, whose node runs on its own thread.
fn writers(mut side: Box<Side>, handle: &Handle, case: &Case) -> Result<Ends<SendEnd, RecvEnd>> {
    let progress = side.share_with_senders(case.producers);
    thread::Builder::new().name(String::from("node")).spawn(move || {
        if side.drive().is_ok() {
            side.close();
        }
    })?;
    let writer = |_| SendEnd::new(SideHandle::remote(&progress), handle.clone(), case.payload.len()).sending_ahead();
    Ok(Ends::many((0..case.producers).map(writer), []))
}
