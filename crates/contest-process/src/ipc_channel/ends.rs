//! `ipc-channel`'s channel of bytes; and messages of a topic and data, as values that the library writes down, and through its
//! channel of bytes. `super` says which version it is.

use std::future::{Future, ready};
use std::hint::black_box;
use std::io;
use std::marker::PhantomData;

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::room;
use estafette_contest_common::typed::{ByHand, DataAlone, Layout, Newtype, SerdeBytes, Shape};
use estafette_measure::case::{Case, Pattern, PayloadKind, Role};
use estafette_measure::entry::{bytes, messages};
use estafette_measure::message::Message;
use estafette_measure::spec::{Joins, Ownership};
use estafette_measure::{
    Carries, Ends, Generator, Mechanism, Party, Raw, Registry, Rendezvous, Rx, Spec, Tx, Verifier,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::library::ipc::{
    IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcReceiver, IpcSender, bytes_channel, channel,
};
use super::{BYTES, NAME, VERSION, fault};

/// Adds the channel of bytes.
pub(in super::super) fn enrol(registry: Registry) -> Registry {
    registry.enrol(bytes(Plain))
}

/// Adds every way to send a message of a topic and data.
pub(in super::super) fn enrol_typed(registry: Registry) -> Registry {
    registry
        .enrol(messages(Values::<Message>::new(Joins::Suite)))
        .enrol(messages(Values::<SerdeBytes>::new(Joins::Suite)))
        .enrol(messages(Values::<Newtype>::new(Joins::Standard)))
        .enrol(messages(Bytes::<DataAlone, false>::new(Joins::Suite)))
        .enrol(messages(Bytes::<DataAlone, true>::new(Joins::Standard)))
        .enrol(messages(Bytes::<ByHand, false>::new(BYTES)))
}

fn spec(variant: &str, stands_on: &str, joins: Joins) -> Spec {
    Spec::new(&format!("process/{NAME}.{variant}"))
        .version(VERSION)
        .stands_on(stands_on)
        .payloads(&[PayloadKind::Message])
        .joins(joins)
}

/// What a party sends with, and receives with.
type Held<S, R> = (Option<S>, Option<R>);

/// Opens a party's ends. The producer makes the channel, and where it is answered a second one, and sends the consumer its
/// ends through a server that serves once.
fn open<S, R>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
    pair: impl Fn() -> io::Result<(S, R)>,
) -> Result<Held<S, R>>
where
    S: Serialize + DeserializeOwned,
    R: Serialize + DeserializeOwned,
{
    if let Role::Consumer(_) = role {
        let (server, name) = IpcOneShotServer::<(R, Option<S>)>::new().context("making a one-shot server")?;
        meet.offer("server", &name)?;
        let (_, (rx, tx)) = server.accept().context("accepting the producer")?;
        return Ok((tx, Some(rx)));
    }
    let (tx, there) = pair()?;
    let (back, rx) = match case.pattern.both_ways() {
        true => pair().map(|(back, rx)| (Some(back), Some(rx)))?,
        false => (None, None),
    };
    let server = IpcSender::<(R, Option<S>)>::connect(meet.want("server")?).context("connecting to the consumer")?;
    server.send((there, back)).context("giving the consumer its ends")?;
    Ok((Some(tx), rx))
}

/// Bytes, through `ipc::bytes_channel`.
struct Plain;

impl Mechanism for Plain {
    fn spec(&self) -> Spec {
        Spec::new(&format!("process/{NAME}"))
            .version(VERSION)
            .stands_on("ipc_channel::ipc::bytes_channel, send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .joins(BYTES)
    }

    fn room(&self, case: &Case) -> Option<u64> {
        room::<DataAlone, false>(case)
    }
}

impl Carries<Raw> for Plain {
    type Tx = SendingBytes<DataAlone, false>;
    type Rx = ReceivingBytes<DataAlone>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        open_bytes(case, role, meet)
    }
}

/// Values of a shape, through `ipc::channel`.
struct Values<M> {
    joins: Joins,
    shape: PhantomData<fn() -> M>,
}

impl<M> Values<M> {
    fn new(joins: Joins) -> Values<M> {
        Values { joins, shape: PhantomData }
    }
}

impl<M: Shape> Mechanism for Values<M> {
    fn spec(&self) -> Spec {
        spec(M::NAME, &format!("ipc::channel of {}", M::TYPE), self.joins).ownership(Ownership::Owned)
    }

    fn room(&self, case: &Case) -> Option<u64> {
        let (tx, rx) = channel::<M>().ok()?;
        let mut next = Generator::new(0, 0, case.payload.len());
        room::blocked(vec![move || tx.send(M::make(&mut next)).is_ok()], rx)
    }
}

impl<M: Shape> Carries<Message> for Values<M> {
    type Tx = SendingValues<M>;
    type Rx = ReceivingValues<M>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let (tx, rx) = open(case, role, meet, channel::<M>)?;
        Ok(Ends(vec![Party { role, tx: tx.map(SendingValues), rx: rx.map(ReceivingValues) }]))
    }
}

/// Makes a value and gives it away, as the library's `send` wants it.
struct SendingValues<M>(IpcSender<M>);

impl<M: Shape> Tx for SendingValues<M> {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.0.send(M::make(next)).map_err(io::Error::other))
    }
}

struct ReceivingValues<M>(IpcReceiver<M>);

impl<M: Shape> Rx for ReceivingValues<M> {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.0.recv().map(|message| message.check(seen)).map_err(fault))
    }
}

/// Bytes laid out by the program, through `ipc::bytes_channel`; a copy of them for each send where it `CLONES`.
struct Bytes<L, const CLONES: bool> {
    joins: Joins,
    layout: PhantomData<fn() -> L>,
}

impl<L, const CLONES: bool> Bytes<L, CLONES> {
    fn new(joins: Joins) -> Bytes<L, CLONES> {
        Bytes { joins, layout: PhantomData }
    }
}

impl<L: Layout, const CLONES: bool> Mechanism for Bytes<L, CLONES> {
    fn spec(&self) -> Spec {
        let (cloned, clone) = if CLONES { ("-cloned", ", cloned for each send") } else { ("", "") };
        let stands_on = format!("ipc::bytes_channel, {}{clone}", L::SAYS);
        spec(&format!("{}{cloned}", L::NAME), &stands_on, self.joins).ownership(L::OWNERSHIP)
    }

    fn room(&self, case: &Case) -> Option<u64> {
        room::<L, CLONES>(case)
    }
}

impl<L: Layout, const CLONES: bool> Carries<Message> for Bytes<L, CLONES> {
    type Tx = SendingBytes<L, CLONES>;
    type Rx = ReceivingBytes<L>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        open_bytes(case, role, meet)
    }
}

/// Opens a party's ends of channels of bytes.
fn open_bytes<L: Layout, const CLONES: bool>(
    case: &Case,
    role: Role,
    meet: &mut Rendezvous,
) -> Result<Ends<SendingBytes<L, CLONES>, ReceivingBytes<L>>> {
    let (tx, rx) = open(case, role, meet, bytes_channel)?;
    let tx = tx.map(|sender| SendingBytes::new(sender, case));
    let rx = rx.map(|receiver| ReceivingBytes { receiver, layout: PhantomData });
    Ok(Ends(vec![Party { role, tx, rx }]))
}

/// How much room a channel of bytes has.
fn room<L: Layout, const CLONES: bool>(case: &Case) -> Option<u64> {
    let (sender, rx) = bytes_channel().ok()?;
    let mut next = Generator::new(0, 0, case.payload.len());
    let mut tx = SendingBytes::<L, CLONES>::new(sender, case);
    room::blocked(vec![move || tx.send(&mut next).is_ok()], rx)
}

struct SendingBytes<L, const CLONES: bool> {
    sender: IpcBytesSender,
    buffer: Buffer,
    layout: PhantomData<fn() -> L>,
}

impl<L: Layout, const CLONES: bool> SendingBytes<L, CLONES> {
    fn new(sender: IpcBytesSender, case: &Case) -> SendingBytes<L, CLONES> {
        SendingBytes { sender, buffer: Buffer::new(L::most(case.payload.len())), layout: PhantomData }
    }

    #[inline(always)]
    fn send(&mut self, next: &mut Generator) -> io::Result<()> {
        let written = L::write(next, &mut self.buffer)?;
        let bytes = &self.buffer[..written];
        // Opaque to the compiler, which might otherwise see that nobody needs the copy.
        if CLONES { self.sender.send(&black_box(bytes.to_vec())) } else { self.sender.send(bytes) }
    }
}

impl<L: Layout, const CLONES: bool> Tx for SendingBytes<L, CLONES> {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(next))
    }
}

struct ReceivingBytes<L> {
    receiver: IpcBytesReceiver,
    layout: PhantomData<fn() -> L>,
}

impl<L: Layout> Rx for ReceivingBytes<L> {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(match self.receiver.recv() {
            Ok(bytes) => L::read(&bytes, seen),
            Err(error) => Err(fault(error)),
        })
    }
}
