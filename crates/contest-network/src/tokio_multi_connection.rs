//! Several senders with tokio. Writer threads pass their messages through a channel to a task that
//! owns the connection. Each of several connections has a task that reads it and passes messages on
//! through a channel.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use estafette_measure::{Generator, Value, Verifier};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio_util::codec::{FramedRead, FramedWrite, LengthDelimitedCodec};

use super::driven::wait;

/// One of the threads that share a connection.
pub(super) struct Writer {
    // Field order matters: the channel is dropped before the task is awaited.
    messages: Sender<Bytes>,
    _writing: Arc<Writing>,
}

/// The task that owns the connection, and its runtime with one thread.
struct Writing {
    runtime: Runtime,
    task: Option<JoinHandle<io::Result<()>>>,
}

/// Creates a runtime with its own thread.
pub(super) fn runtime_for_writers() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// Creates `count` writers for a connection of this runtime. Up to `capacity` messages wait in the
/// channel.
pub(super) fn writers<W>(
    runtime: Runtime,
    frames: FramedWrite<W, LengthDelimitedCodec>,
    count: usize,
    capacity: usize,
) -> Vec<Writer>
where
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (messages, receiver) = channel(capacity.max(1));
    let task = Some(runtime.spawn(write(frames, receiver)));
    let writing = Arc::new(Writing { runtime, task });
    let writer = |_| Writer { messages: messages.clone(), _writing: Arc::clone(&writing) };
    (0..count).map(writer).collect()
}

/// Writes messages from the channel. Messages that are available at the same time are sent
/// together.
async fn write<W>(mut frames: FramedWrite<W, LengthDelimitedCodec>, mut messages: Receiver<Bytes>) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    while let Some(message) = messages.recv().await {
        frames.feed(message).await?;
        while let Ok(message) = messages.try_recv() {
            frames.feed(message).await?;
        }
        SinkExt::<Bytes>::flush(&mut frames).await?;
    }
    Ok(())
}

impl Writer {
    pub(super) fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let message = Bytes::from(Vec::<u8>::make(source));
        self.messages.blocking_send(message).map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // All writers have dropped the channel, so the task ends after it has written everything.
        // An error was already reported by the closed channel.
        if let Some(task) = self.task.take() {
            let _ = self.runtime.block_on(task);
        }
    }
}

/// The receiving end of many connections.
pub(super) struct ChannelRecvEnd {
    runtime: Arc<Runtime>,
    messages: Receiver<io::Result<BytesMut>>,
}

impl ChannelRecvEnd {
    /// Starts to read the connections. Up to `capacity` messages wait in the channel.
    pub(super) fn new<R>(
        runtime: Arc<Runtime>,
        connections: Vec<FramedRead<R, LengthDelimitedCodec>>,
        capacity: usize,
    ) -> ChannelRecvEnd
    where
        R: AsyncRead + Unpin + Send + 'static,
    {
        let (sender, messages) = channel(capacity.max(1));
        for connection in connections {
            runtime.spawn(read(connection, sender.clone()));
        }
        ChannelRecvEnd { runtime, messages }
    }

    #[inline(always)]
    pub(super) fn recv_message(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        // `None` after every connection has ended.
        let received =
            wait(&self.runtime, self.messages.recv()).unwrap_or_else(|| Err(ErrorKind::UnexpectedEof.into()));
        received.map(|message| verifier.bytes(&message))
    }
}

async fn read<R>(mut frames: FramedRead<R, LengthDelimitedCodec>, messages: Sender<io::Result<BytesMut>>)
where
    R: AsyncRead + Unpin,
{
    while let Some(read) = frames.next().await {
        if messages.send(read).await.is_err() {
            return;
        }
    }
}
