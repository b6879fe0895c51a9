//! `ipc-channel`'s channel of bytes: sequenced packets of a UNIX socket; what does not fit one goes in several, through a pair
//! of sockets of its own.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};

use ::ipc_channel::IpcError;
use ::ipc_channel::ipc::{IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcSender, bytes_channel};
use anyhow::{Context, Result};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Joins;
use estafette_measure::{Carries, Ends, Generator, Mechanism, Party, Raw, Rendezvous, Rx, Spec, Tx, Verifier};

use crate::buffer::Buffer;

/// What a producer gives the consumer: the receiver of its messages, and where it is answered, the sender of answers.
type Given = (IpcBytesReceiver, Option<IpcBytesSender>);

pub(super) struct IpcChannel;

impl Mechanism for IpcChannel {
    fn spec(&self) -> Spec {
        Spec::new("process/ipc-channel")
            .version("0.23")
            .stands_on("ipc_channel::ipc::bytes_channel, send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .joins(Joins::Suite)
    }
}

impl Carries<Raw> for IpcChannel {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let (tx, rx) = if let Role::Consumer(_) = role {
            let (server, name) = IpcOneShotServer::<Given>::new().context("making a one-shot server")?;
            meet.offer("server", &name)?;
            let (_, (rx, tx)) = server.accept().context("accepting the producer")?;
            (tx, Some(rx))
        } else {
            let (tx, there) = bytes_channel()?;
            let (back, rx) = match case.pattern.both_ways() {
                true => bytes_channel().map(|(back, rx)| (Some(back), Some(rx)))?,
                false => (None, None),
            };
            let server = IpcSender::<Given>::connect(meet.want("server")?).context("connecting to the consumer")?;
            server.send((there, back)).context("giving the consumer its ends")?;
            (Some(tx), rx)
        };
        let tx = tx.map(|sender| Sending { sender, buffer: Buffer::new(case.payload.len()) });
        Ok(Ends(vec![Party { role, tx, rx: rx.map(Receiving) }]))
    }
}

/// The sending end.
pub(super) struct Sending {
    sender: IpcBytesSender,
    buffer: Buffer,
}

impl Tx for Sending {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        next.fill(&mut self.buffer);
        ready(self.sender.send(&self.buffer))
    }
}

/// The receiving end.
pub(super) struct Receiving(IpcBytesReceiver);

impl Rx for Receiving {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(match self.0.recv() {
            Ok(message) => {
                seen.bytes(&message);
                Ok(())
            }
            Err(IpcError::Disconnected) => Err(ErrorKind::UnexpectedEof.into()),
            Err(IpcError::Io(error)) => Err(error),
            Err(error) => Err(io::Error::new(ErrorKind::InvalidData, error.to_string())),
        })
    }
}
