//! `ipc-channel`'s channel of bytes: sequenced packets of a UNIX socket; what does not fit one goes in several, through a pair
//! of sockets of its own.

use std::io::{self, ErrorKind};

use ::ipc_channel::IpcError;
use estafette_measure::Spec;
use estafette_measure::case::Pattern;
use estafette_measure::spec::Joins;

/// The mechanism over one version of the crate, whose types are its own: `$krate` is the crate, `$mechanism` the mechanism's
/// name in its file, `$spec` what it says of itself, `$fault` what the error of a receive means.
macro_rules! bytes_channel {
    ($krate:ident, $mechanism:ident, $spec:expr, $fault:path) => {
        pub(super) struct $mechanism;

        impl estafette_measure::Mechanism for $mechanism {
            fn spec(&self) -> estafette_measure::Spec {
                $spec
            }

            fn room(&self, case: &estafette_measure::case::Case) -> Option<u64> {
                ends::room(case)
            }
        }

        mod ends {
            use std::future::{Future, ready};
            use std::io;

            use ::$krate::ipc::{IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcSender, bytes_channel};
            use anyhow::{Context, Result};
            use estafette_measure::case::{Case, Role};
            use estafette_measure::{Carries, Ends, Generator, Party, Raw, Rendezvous, Rx, Tx, Verifier};

            use crate::buffer::Buffer;
            use crate::room;

            pub(super) fn room(case: &Case) -> Option<u64> {
                let (tx, rx) = bytes_channel().ok()?;
                let message = Buffer::new(case.payload.len());
                room::blocked(vec![move || tx.send(&message).is_ok()], rx)
            }

            /// What a producer gives the consumer: the receiver of its messages, and where it is answered, the sender of
            /// answers.
            type Given = (IpcBytesReceiver, Option<IpcBytesSender>);

            impl Carries<Raw> for super::$mechanism {
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
                        let server =
                            IpcSender::<Given>::connect(meet.want("server")?).context("connecting to the consumer")?;
                        server.send((there, back)).context("giving the consumer its ends")?;
                        (Some(tx), rx)
                    };
                    let tx = tx.map(|sender| Sending { sender, buffer: Buffer::new(case.payload.len()) });
                    Ok(Ends(vec![Party { role, tx, rx: rx.map(Receiving) }]))
                }
            }

            /// The sending end.
            pub(in super::super) struct Sending {
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
            pub(in super::super) struct Receiving(IpcBytesReceiver);

            impl Rx for Receiving {
                #[inline(always)]
                fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
                    ready(self.0.recv().map(|message| seen.bytes(&message)).map_err($fault))
                }
            }
        }
    };
}
pub(super) use bytes_channel;

bytes_channel!(
    ipc_channel,
    IpcChannel,
    Spec::new("process/ipc-channel")
        .version(env!("LOCKED_IPC_CHANNEL_0_23"))
        .stands_on("ipc_channel::ipc::bytes_channel, send and recv")
        .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
        .joins(Joins::Suite),
    super::fault
);

fn fault(error: IpcError) -> io::Error {
    match error {
        IpcError::Disconnected => ErrorKind::UnexpectedEof.into(),
        IpcError::Io(error) => error,
        error => io::Error::new(ErrorKind::InvalidData, error.to_string()),
    }
}
