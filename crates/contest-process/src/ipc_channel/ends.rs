//! `ipc-channel`'s channel of bytes, and messages with a topic and data: as values that the library
//! serializes, and as bytes through its channel of bytes. `super::version` selects the version of
//! the library.

use std::hint::black_box;
use std::io;
use std::marker::PhantomData;

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity;
use estafette_contest_common::typed::{ByHand, DataAlone, Layout, Newtype, SerdeBytes, Shape};
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::entry::{bytes, messages};
use estafette_measure::message::Message;
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::{
    Ends, Generator, Mechanism, PartyEnds, Raw, Registry, Rendezvous, Rx, Spec, Transport, Tx, Verifier,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::version::library::ipc::{
    IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcReceiver, IpcSender, bytes_channel, channel,
};
use super::version::{BYTES, NAME, VERSION, fault};

/// Adds the channel of bytes.
pub(in super::super) fn register(registry: Registry) -> Registry {
    registry.register(bytes(Plain))
}

/// Adds all variants for messages with a topic and data.
pub(in super::super) fn register_typed(registry: Registry) -> Registry {
    registry
        .register(messages(Values::<Message>::new(Tier::Suite)))
        .register(messages(Values::<SerdeBytes>::new(Tier::Suite)))
        .register(messages(Values::<Newtype>::new(Tier::Standard)))
        .register(messages(Bytes::<DataAlone, false>::new(Tier::Suite)))
        .register(messages(Bytes::<DataAlone, true>::new(Tier::Standard)))
        .register(messages(Bytes::<ByHand, false>::new(BYTES)))
}

fn spec(variant: &str, implementation: &str, tier: Tier) -> Spec {
    Spec::new(&format!("process/{NAME}.{variant}"))
        .kernel_copies(2)
        .version(VERSION)
        .implementation(implementation)
        .payloads(&[PayloadKind::Message])
        .tier(tier)
}

/// A party's sender and receiver.
type EndPair<S, R> = (Option<S>, Option<R>);

/// Opens a party's ends. The producer creates the channel, and a second one for replies. It sends
/// the consumer's ends through a one-shot server.
fn open<S, R>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    pair: impl Fn() -> io::Result<(S, R)>,
) -> Result<EndPair<S, R>>
where
    S: Serialize + DeserializeOwned,
    R: Serialize + DeserializeOwned,
{
    if let Role::Consumer(_) = role {
        let (server, name) = IpcOneShotServer::<(R, Option<S>)>::new().context("making a one-shot server")?;
        rendezvous.publish("server", &name)?;
        let (_, (rx, tx)) = server.accept().context("accepting the producer")?;
        return Ok((tx, Some(rx)));
    }
    let (tx, forward) = pair()?;
    let (reply, rx) = match case.pattern.is_bidirectional() {
        true => pair().map(|(reply, rx)| (Some(reply), Some(rx)))?,
        false => (None, None),
    };
    let server =
        IpcSender::<(R, Option<S>)>::connect(rendezvous.request("server")?).context("connecting to the consumer")?;
    server.send((forward, reply)).context("sending the consumer its ends")?;
    Ok((Some(tx), rx))
}

/// Bytes through `ipc::bytes_channel`.
struct Plain;

impl Mechanism for Plain {
    fn spec(&self) -> Spec {
        Spec::new(&format!("process/{NAME}"))
            .kernel_copies(2)
            .version(VERSION)
            .implementation("ipc_channel::ipc::bytes_channel, send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .tier(BYTES)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        effective_capacity::<DataAlone, false>(case)
    }
}

impl Transport<Raw> for Plain {
    type Tx = BytesSendEnd<DataAlone, false>;
    type Rx = BytesRecvEnd<DataAlone>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        open_bytes(case, role, rendezvous)
    }
}

/// Values of a type through `ipc::channel`.
struct Values<M> {
    tier: Tier,
    shape: PhantomData<fn() -> M>,
}

impl<M> Values<M> {
    fn new(tier: Tier) -> Values<M> {
        Values { tier, shape: PhantomData }
    }
}

impl<M: Shape> Mechanism for Values<M> {
    fn spec(&self) -> Spec {
        spec(M::NAME, &format!("ipc_channel::ipc::channel of {}", M::TYPE), self.tier).ownership(Ownership::Owned)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (tx, rx) = channel::<M>().ok()?;
        let mut source = Generator::new(0, 0, case.payload.len());
        capacity::blocked(vec![move || tx.send(M::make(&mut source)).is_ok()], rx)
    }
}

impl<M: Shape> Transport<Message> for Values<M> {
    type Tx = ValueSendEnd<M>;
    type Rx = ValueRecvEnd<M>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let (tx, rx) = open(case, role, rendezvous, channel::<M>)?;
        Ok(Ends(vec![PartyEnds { role, tx: tx.map(ValueSendEnd), rx: rx.map(ValueRecvEnd) }]))
    }
}

/// A sending end that moves each value into the library's `send`.
struct ValueSendEnd<M>(IpcSender<M>);

impl<M: Shape> Tx for ValueSendEnd<M> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.0.send(M::make(source)).map_err(io::Error::other)
    }
}

struct ValueRecvEnd<M>(IpcReceiver<M>);

impl<M: Shape> Rx for ValueRecvEnd<M> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.0.recv().map(|message| message.check(verifier)).map_err(fault)
    }
}

/// Bytes laid out by the program through `ipc::bytes_channel`. `CLONES` makes a copy for each send.
struct Bytes<L, const CLONES: bool> {
    tier: Tier,
    layout: PhantomData<fn() -> L>,
}

impl<L, const CLONES: bool> Bytes<L, CLONES> {
    fn new(tier: Tier) -> Bytes<L, CLONES> {
        Bytes { tier, layout: PhantomData }
    }
}

impl<L: Layout, const CLONES: bool> Mechanism for Bytes<L, CLONES> {
    fn spec(&self) -> Spec {
        let (cloned, clone) = if CLONES { ("-cloned", ", cloned for each send") } else { ("", "") };
        let implementation = format!("ipc_channel::ipc::bytes_channel, {}{clone}", L::SAYS);
        spec(&format!("{}{cloned}", L::NAME), &implementation, self.tier).ownership(L::OWNERSHIP)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        effective_capacity::<L, CLONES>(case)
    }
}

impl<L: Layout, const CLONES: bool> Transport<Message> for Bytes<L, CLONES> {
    type Tx = BytesSendEnd<L, CLONES>;
    type Rx = BytesRecvEnd<L>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        open_bytes(case, role, rendezvous)
    }
}

/// Opens a party's ends of channels of bytes.
fn open_bytes<L: Layout, const CLONES: bool>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
) -> Result<Ends<BytesSendEnd<L, CLONES>, BytesRecvEnd<L>>> {
    let (tx, rx) = open(case, role, rendezvous, bytes_channel)?;
    let tx = tx.map(|sender| BytesSendEnd::new(sender, case));
    let rx = rx.map(|receiver| BytesRecvEnd { receiver, layout: PhantomData });
    Ok(Ends(vec![PartyEnds { role, tx, rx }]))
}

/// Probes the capacity of a channel of bytes, in messages.
fn effective_capacity<L: Layout, const CLONES: bool>(case: &Case) -> Option<u64> {
    let (sender, rx) = bytes_channel().ok()?;
    let mut source = Generator::new(0, 0, case.payload.len());
    let mut tx = BytesSendEnd::<L, CLONES>::new(sender, case);
    capacity::blocked(vec![move || tx.send(&mut source).is_ok()], rx)
}

struct BytesSendEnd<L, const CLONES: bool> {
    sender: IpcBytesSender,
    buffer: Buffer,
    layout: PhantomData<fn() -> L>,
}

impl<L: Layout, const CLONES: bool> BytesSendEnd<L, CLONES> {
    fn new(sender: IpcBytesSender, case: &Case) -> BytesSendEnd<L, CLONES> {
        BytesSendEnd { sender, buffer: Buffer::new(L::most(case.payload.len())), layout: PhantomData }
    }
}

impl<L: Layout, const CLONES: bool> Tx for BytesSendEnd<L, CLONES> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let written = L::write(source, &mut self.buffer)?;
        let bytes = &self.buffer[..written];
        // Prevents the compiler from removing the unused copy.
        if CLONES { self.sender.send(&black_box(bytes.to_vec())) } else { self.sender.send(bytes) }
    }
}

struct BytesRecvEnd<L> {
    receiver: IpcBytesReceiver,
    layout: PhantomData<fn() -> L>,
}

impl<L: Layout> Rx for BytesRecvEnd<L> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match self.receiver.recv() {
            Ok(bytes) => L::read(&bytes, verifier),
            Err(error) => Err(fault(error)),
        }
    }
}
