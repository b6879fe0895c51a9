//! Messages behind their length by tokio-util's codec, over whatever tokio reads from and writes to.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use estafette_measure::case::{Case, Role};
use estafette_measure::{Ends, Generator, Party, Payload, Rx, Tx, Verifier};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

use super::driven::wait;
use super::frames::together;

/// Both ends of a party.
pub(super) fn ends<W, R>(
    runtime: Arc<Runtime>,
    to: W,
    from: R,
    case: &Case,
    role: Role,
) -> Ends<Sending<W>, Receiving<R>>
where
    W: AsyncWrite,
    R: AsyncRead,
{
    let codec = LengthDelimitedCodec::builder().max_frame_length(case.payload.len()).new_codec();
    let frames = FramedWrite::new(to, codec.clone());
    let tx = Sending { runtime: Arc::clone(&runtime), frames, together: together(case) };
    let rx = Receiving { runtime, frames: FramedRead::new(from, codec) };
    Ends(vec![Party { role, tx: Some(tx), rx: Some(rx) }])
}

/// The sending end.
pub(super) struct Sending<W> {
    runtime: Arc<Runtime>,
    frames: FramedWrite<W, LengthDelimitedCodec>,
    /// Whether messages wait for others.
    together: bool,
}

impl<W: AsyncWrite + Unpin + Send + 'static> Tx for Sending<W> {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        let message = Bytes::from(Vec::<u8>::make(next));
        ready(if self.together {
            wait(&self.runtime, self.frames.feed(message))
        } else {
            wait(&self.runtime, self.frames.send(message))
        })
    }

    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(wait(&self.runtime, SinkExt::<Bytes>::flush(&mut self.frames)))
    }
}

/// The receiving end.
pub(super) struct Receiving<R> {
    runtime: Arc<Runtime>,
    frames: FramedRead<R, LengthDelimitedCodec>,
}

impl<R: AsyncRead + Unpin + Send + 'static> Rx for Receiving<R> {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        let received = wait(&self.runtime, self.frames.next()).unwrap_or_else(|| Err(ErrorKind::UnexpectedEof.into()));
        ready(received.map(|message| seen.bytes(&message)))
    }
}
