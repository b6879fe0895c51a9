//! Futures of tokio's, driven by the thread that waits for them.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use anyhow::Result;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

/// A runtime that goes on while somebody waits in it, and else is still.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A connection that is made, in a runtime's hands.
pub(super) fn stream(runtime: &Runtime, connection: std::net::TcpStream) -> Result<TcpStream> {
    connection.set_nonblocking(true)?;
    let _inside = runtime.enter();
    Ok(TcpStream::from_std(connection)?)
}

/// Runs a future to its end. One that is ready at once does not enter the runtime, as it would not a message in a loop that is
/// a future itself.
#[inline(always)]
pub(super) fn wait<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => runtime.block_on(future),
    }
}
