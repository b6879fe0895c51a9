//! Channels between threads of one process.

use estafette_measure::Registry;
use estafette_measure::entry::{Entry, bytes, values};

use estafette_contest_common::channel::ThreadChannel;
use estafette_contest_common::channel::mechanism::BetweenThreads;

mod crossbeam;
mod crossfire;
mod fanring;
mod fanring_mpmc;
mod flume;
mod kanal;
mod reference_ring;
mod ringbuf;
mod rtrb;
mod rtrb_by_hand;
mod std_mpsc;

pub use self::rtrb::Rtrb;

/// Makes an entry of a channel.
fn channel(channel: impl ThreadChannel) -> impl Entry {
    values(BetweenThreads::of(channel))
}

/// Adds the mechanisms of the scope `thread`.
pub fn register(registry: Registry) -> Registry {
    registry
        .register(values(rtrb::Rtrb))
        .register(values(ringbuf::Ringbuf))
        .register(channel(std_mpsc::StdMpsc))
        .register(channel(crossbeam::Crossbeam))
        .register(channel(flume::Flume))
        .register(channel(kanal::Kanal))
        .register(channel(crossfire::Crossfire))
        .register(channel(fanring::Fanring))
        .register(channel(fanring_mpmc::FanringMpmc))
        .register(bytes(reference_ring::ReferenceRing))
        .register(rtrb_by_hand::RtrbByHand::new())
}
