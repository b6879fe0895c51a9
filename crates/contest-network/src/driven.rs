//! Runs tokio's futures on the thread that waits for them.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use anyhow::Result;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// Creates a runtime that makes progress only while a thread waits in it.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Registers an established connection with a runtime.
pub(super) fn stream(runtime: &Runtime, connection: std::net::TcpStream) -> Result<TcpStream> {
    connection.set_nonblocking(true)?;
    let _inside = runtime.enter();
    Ok(TcpStream::from_std(connection)?)
}

/// Runs a future to completion. A future that is ready immediately does not enter the runtime, as
/// in an async program's loop.
#[inline(always)]
pub(super) fn wait<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => runtime.block_on(future),
    }
}
