//! This project's own node, by every transport it has: one in each process, driven by the thread that uses it.

mod ends;
mod side;

use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Loss, Ordering, Tier, Wait};
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};
use estafette_net::{Address, Handle, Limits, Node, Options};

use self::ends::{Receiving, Sending};
use self::side::{Held, Side};
use super::frames::{SPIN, together};
use super::multi_connection::{self, and_several};
use super::{tls, udp};

/// `network/framed-estafette` and its siblings.
pub(super) struct Estafette {
    name: &'static str,
    implementation: &'static str,
    /// The scheme of its addresses.
    scheme: &'static str,
    /// Whether it stands where several send.
    of_several: bool,
    tier: Tier,
}

pub(super) const TCP: Estafette = Estafette {
    name: "network/tcp-estafette",
    implementation: "estafette-net: tcp:// on 127.0.0.1, told in records of one length, a batch for a stream",
    scheme: "tcp",
    of_several: false,
    tier: Tier::Overview,
};

pub(super) const FRAMED: Estafette = Estafette {
    name: "network/framed-estafette",
    implementation: "estafette-net: tcp+msg:// on 127.0.0.1, a batch for a stream, one node for all connections",
    scheme: "tcp+msg",
    of_several: true,
    tier: Tier::Suite,
};

pub(super) const UNIX: Estafette = Estafette {
    name: "network/unix-framed-estafette",
    implementation: "estafette-net: unix+msg://, a batch for a stream, one node for all connections",
    scheme: "unix+msg",
    of_several: true,
    tier: Tier::Standard,
};

pub(super) const WS: Estafette = Estafette {
    name: "network/ws-estafette",
    implementation: "estafette-net: ws:// on 127.0.0.1, masked by the client, a batch for a stream",
    scheme: "ws",
    of_several: false,
    tier: Tier::Suite,
};

pub(super) const TLS: Estafette = Estafette {
    name: "network/tls-estafette",
    implementation: "estafette-net: tls+msg:// on 127.0.0.1, by rustls, a batch for a stream",
    scheme: "tls+msg",
    of_several: false,
    tier: Tier::Standard,
};

pub(super) const UDP: Estafette = Estafette {
    name: "network/udp-estafette",
    implementation: "estafette-net: udp:// on 127.0.0.1, a batch for a stream",
    scheme: "udp",
    of_several: false,
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
            .tier(self.tier);
        if self.is_lossy() {
            let spec = spec.patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::SameThread]);
            return spec.max_message(udp::MAX_DATAGRAM).ordering(Ordering::Unordered).loss(Loss::BestEffort);
        }
        let patterns = [Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::SameThread];
        if self.of_several {
            let spec = spec.max_producers(None).ordering(Ordering::PerProducer);
            return spec.patterns(&and_several(&patterns));
        }
        spec.patterns(&patterns)
    }
}

impl Transport<Raw> for Estafette {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let len = case.payload.len();
        let mut limits = Limits::default();
        limits.message = limits.message.max(len);
        limits.unfinished = limits.unfinished.max(2 * len);
        let mut node = Node::with_limits(limits)?;
        if case.wait == Wait::Adaptive {
            node = node.spin(SPIN);
        }
        let handle = node.handle();
        let mut side = Box::new(Side::new(node, self.is_lossy()));
        let mut peers = Vec::new();
        let one_thread = case.pattern == Pattern::SameThread;
        let connections = multi_connection::connections(case, role);
        if !matches!(role, Role::Producer(_)) {
            let place = match self.scheme {
                "unix+msg" => format!("unix+msg://{}", rendezvous.dir().join("socket").display()),
                scheme => format!("{scheme}://127.0.0.1:0"),
            };
            let options = match self.scheme {
                "udp" => Options::default().buffer(udp::buffer(case)),
                "tls+msg" => Options::default().tls_server(Arc::new(tls::server(rendezvous)?)),
                "tcp" => Options::default().records(len),
                _ => Options::default(),
            };
            let listener = handle.listen_with(place.as_str(), &options)?;
            let address = handle.local_address(listener).context("an address of its own")?;
            rendezvous.publish("address", &address.to_string())?;
        }
        if !matches!(role, Role::Consumer(_)) {
            let address: Address = rendezvous.request("address")?.parse()?;
            let options = match self.scheme {
                "tls+msg" => Options::default().tls_client(Arc::new(tls::client(rendezvous)?)),
                "tcp" => Options::default().records(len),
                _ => Options::default(),
            };
            for _ in 0..connections {
                peers.push(handle.connect_with(address.clone(), &options)?);
            }
            side.goes_to(peers[0]);
        }
        if !self.is_lossy() {
            side.until_connected(if one_thread { 2 } else { connections })?;
            side.has_connections(connections);
        }
        match (case.pattern, role) {
            (Pattern::Writers, Role::Producer(_)) => return writers(side, &handle, case),
            (Pattern::Connections, Role::Producer(_)) => {
                let sender = |(peer, side)| Sending::new(side, handle.clone(), len).together(false).to(peer);
                return Ok(Ends::many(peers.into_iter().zip(Held::shared(side)).map(sender), []));
            }
            _ => {}
        }
        let (tx, rx) = match (case.pattern, role) {
            (Pattern::Duplex, _) => {
                let capacity = side.tells_elsewhere(1);
                (Some(Held::elsewhere(&capacity)), Some(Held::Alone(side)))
            }
            (Pattern::PingPong | Pattern::SameThread, _) => {
                let mut held = Held::shared(side);
                (held.next(), held.next())
            }
            (_, Role::Consumer(_)) => (None, Some(Held::Alone(side))),
            _ => (Some(Held::Alone(side)), None),
        };
        let tx = tx.map(|side| match Sending::new(side, handle, len) {
            tx if together(case) => tx.together(self.is_lossy()),
            tx => tx,
        });
        let role = if one_thread { Role::Producer(0) } else { role };
        Ok(Ends(vec![PartyEnds { role, tx, rx: rx.map(Receiving::new) }]))
    }
}

/// As many senders as there are on one connection, whose node has a thread of its own.
fn writers(mut side: Box<Side>, handle: &Handle, case: &Case) -> Result<Ends<Sending, Receiving>> {
    let capacity = side.tells_elsewhere(case.producers);
    thread::Builder::new().name(String::from("node")).spawn(move || {
        if side.drive().is_ok() {
            side.close();
        }
    })?;
    let writer = |_| Sending::new(Held::elsewhere(&capacity), handle.clone(), case.payload.len()).going_on();
    Ok(Ends::many((0..case.producers).map(writer), []))
}
