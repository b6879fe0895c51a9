//! Length-prefixed messages with tokio-util's codec, over any tokio reader and writer.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use estafette_measure::case::Case;
use estafette_measure::{Generator, Rx, Tx, Value, Verifier};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

use super::driven::wait;
use super::frames::batched;

/// Returns a codec for the case's messages. It rejects longer frames.
pub(super) fn codec(case: &Case) -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(case.payload.len()).new_codec()
}

/// The sending end.
pub(super) struct SendEnd<W> {
    runtime: Arc<Runtime>,
    frames: FramedWrite<W, LengthDelimitedCodec>,
    /// Whether messages are batched.
    batched: bool,
}

impl<W: AsyncWrite> SendEnd<W> {
    pub(super) fn new(runtime: Arc<Runtime>, to: W, case: &Case) -> SendEnd<W> {
        SendEnd { runtime, frames: FramedWrite::new(to, codec(case)), batched: batched(case) }
    }
}

impl<W: AsyncWrite + Unpin> SendEnd<W> {
    #[inline(always)]
    pub(super) fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let message = Bytes::from(Vec::<u8>::make(source));
        if self.batched {
            wait(&self.runtime, self.frames.feed(message))
        } else {
            wait(&self.runtime, self.frames.send(message))
        }
    }

    pub(super) fn flush_frames(&mut self) -> io::Result<()> {
        wait(&self.runtime, SinkExt::<Bytes>::flush(&mut self.frames))
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Tx for SendEnd<W> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.send(source)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_frames()
    }
}

/// The receiving end.
pub(super) struct RecvEnd<R> {
    runtime: Arc<Runtime>,
    frames: FramedRead<R, LengthDelimitedCodec>,
}

impl<R: AsyncRead> RecvEnd<R> {
    pub(super) fn new(runtime: Arc<Runtime>, from: R, case: &Case) -> RecvEnd<R> {
        RecvEnd { runtime, frames: FramedRead::new(from, codec(case)) }
    }
}

impl<R: AsyncRead + Unpin> RecvEnd<R> {
    #[inline(always)]
    pub(super) fn recv_message(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let received = wait(&self.runtime, self.frames.next()).unwrap_or_else(|| Err(ErrorKind::UnexpectedEof.into()));
        received.map(|message| verifier.bytes(&message))
    }
}

impl<R: AsyncRead + Unpin + Send + 'static> Rx for RecvEnd<R> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_message(verifier)
    }
}
