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
pub fn enrol(registry: Registry) -> Registry {
    registry
        .enrol(values(rtrb::Rtrb))
        .enrol(values(ringbuf::Ringbuf))
        .enrol(channel(std_mpsc::StdMpsc))
        .enrol(channel(crossbeam::Crossbeam))
        .enrol(channel(flume::Flume))
        .enrol(channel(kanal::Kanal))
        .enrol(channel(crossfire::Crossfire))
        .enrol(channel(fanring::Fanring))
        .enrol(channel(fanring_mpmc::FanringMpmc))
        .enrol(bytes(reference_ring::ReferenceRing))
        .enrol(rtrb_by_hand::RtrbByHand::new())
}
