//! Channels between async tasks of one process: the scope `task`.
//!
//! Each file contains everything specific to its channel: how to open it, how to send and receive
//! one message, and its `Spec`. To add a channel, add a file and a line in [`register`].
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

use estafette_contest_common::channel::TaskChannel;
use estafette_contest_common::channel::mechanism::BetweenTasks;
use estafette_measure::Registry;
use estafette_measure::entry::{AsyncValueTransport, Entry, async_values};

mod async_channel;
mod async_channel_stream;
mod asyncband;
mod credit;
mod crossfire;
mod crossfire_mpmc;
mod fanring;
mod flume;
mod flume_sink;
mod futures_channel;
mod kanal;
mod loole;
mod rapidfire;
mod rapidfire_mpmc;
mod tachyonix;
mod thingbuf;
mod tokio_mpsc;
mod tokio_mpsc_sink;
mod tokio_mpsc_unbounded;

pub use self::async_channel::AsyncChannel;
pub use self::flume::Flume;
pub use self::futures_channel::FuturesChannel;
pub use self::tokio_mpsc::TokioMpsc;

/// `task/tokio-mpsc`.
pub fn tokio_mpsc() -> impl AsyncValueTransport {
    BetweenTasks::of(tokio_mpsc::TokioMpsc)
}

/// Makes an entry of a channel.
fn channel(channel: impl TaskChannel) -> impl Entry {
    async_values(BetweenTasks::of(channel))
}

/// Adds the channels.
pub fn register(registry: Registry) -> Registry {
    registry
        .register(channel(tokio_mpsc::TokioMpsc))
        .register(channel(tokio_mpsc_unbounded::TokioMpscUnbounded))
        .register(channel(tokio_mpsc_sink::TokioMpscSink))
        .register(channel(flume::Flume))
        .register(channel(flume_sink::FlumeSink))
        .register(channel(async_channel::AsyncChannel))
        .register(channel(async_channel_stream::AsyncChannelStream))
        .register(channel(futures_channel::FuturesChannel))
        .register(channel(kanal::Kanal))
        .register(channel(crossfire::Crossfire))
        .register(channel(crossfire_mpmc::CrossfireMpmc))
        .register(channel(tachyonix::Tachyonix))
        .register(channel(rapidfire::Rapidfire))
        .register(channel(rapidfire_mpmc::RapidfireMpmc))
        .register(channel(fanring::Fanring))
        .register(channel(asyncband::Asyncband))
        .register(channel(thingbuf::Thingbuf))
        .register(channel(loole::Loole))
}
