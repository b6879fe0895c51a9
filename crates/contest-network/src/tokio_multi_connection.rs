//! Several senders by tokio: writers on threads hand their messages to a task that has the connection, by a channel; each of
//! several connections has a task that reads it and hands messages over by a channel.

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

/// A thread that writes to a connection with others.
pub(super) struct Writer {
    // Dropped before the task is waited for.
    messages: Sender<Bytes>,
    _writing: Arc<Writing>,
}

/// The task that has the connection, and the runtime whose only thread runs it.
struct Writing {
    runtime: Runtime,
    task: Option<JoinHandle<io::Result<()>>>,
}

/// A runtime with a thread of its own.
pub(super) fn runtime_for_writers() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// So many writers to a connection of this runtime's, of whose messages so many may wait.
pub(super) fn writers<W>(
    runtime: Runtime,
    frames: FramedWrite<W, LengthDelimitedCodec>,
    count: usize,
    capacity: usize,
) -> Vec<Writer>
where
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (messages, received) = channel(capacity.max(1));
    let task = Some(runtime.spawn(write(frames, received)));
    let writing = Arc::new(Writing { runtime, task });
    let writer = |_| Writer { messages: messages.clone(), _writing: Arc::clone(&writing) };
    (0..count).map(writer).collect()
}

/// Writes what comes; what is there at the same time leaves together.
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
        // Every writer has let go of the channel, so the task ends once all has been written. What failed has been told: the
        // channel was closed.
        if let Some(task) = self.task.take() {
            let _ = self.runtime.block_on(task);
        }
    }
}

/// The receiving end of many connections.
pub(super) struct Gathering {
    runtime: Arc<Runtime>,
    messages: Receiver<io::Result<BytesMut>>,
}

impl Gathering {
    /// Begins to read these, of whose messages so many may wait.
    pub(super) fn new<R>(
        runtime: Arc<Runtime>,
        connections: Vec<FramedRead<R, LengthDelimitedCodec>>,
        capacity: usize,
    ) -> Gathering
    where
        R: AsyncRead + Unpin + Send + 'static,
    {
        let (hands_over, messages) = channel(capacity.max(1));
        for connection in connections {
            runtime.spawn(read(connection, hands_over.clone()));
        }
        Gathering { runtime, messages }
    }

    #[inline(always)]
    pub(super) fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        // None once every connection has ended.
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
