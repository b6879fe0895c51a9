//! Loom models of a channel. Loom runs every interleaving, and every value that each load may
//! return, for a few messages. A lost wake-up is a deadlock here, since the modelled futex has no
//! timeout.
//!
//! The ends here do what the real ones do around `ring.rs`, with messages of one byte, one cache
//! line each.

#![allow(unsafe_code)]

use loom::model::Builder;
use loom::thread;

use super::layout::ChannelControls;
use super::ring::{End, Ring, stride};
use crate::memory::Memory;
use crate::wait::WaitMode;

fn ring(messages: u64, wait: WaitMode) -> Ring {
    Ring::new(Memory::new(ChannelControls::new(), (messages * stride(1)) as usize, messages as usize), wait)
}

/// Sends a message; waits for space. False if the receiver is closed and the ring is full.
fn send(ring: &Ring, index: u64, value: u8) -> bool {
    let end = (index + 1) * stride(1);
    while end > ring.head() + ring.capacity() {
        let closed = ring.is_closed(End::Receiver);
        if end <= ring.head() + ring.capacity() {
            break;
        }
        if closed {
            return false;
        }
        match ring.wait {
            WaitMode::Spin => thread::yield_now(),
            _ => ring.sleep_for_space(end - ring.capacity(), || ring.is_closed(End::Receiver)),
        }
    }
    // SAFETY: the ring lives; loom verifies the rest.
    let mut bytes = unsafe { ring.memory().bytes_mut(index * stride(1), 1) };
    bytes[0] = value;
    drop(bytes);
    ring.publish(index, 1);
    ring.notify();
    true
}

/// Receives a message; waits for it. None if the sender is closed and the ring is empty.
fn recv(ring: &Ring, index: u64) -> Option<u8> {
    loop {
        let closed = ring.is_closed(End::Sender);
        if ring.look(index).is_some() {
            // SAFETY: the ring lives; loom verifies the rest.
            let value = unsafe { ring.memory().bytes(index * stride(1), 1) }[0];
            ring.publish_head((index + 1) * stride(1));
            return Some(value);
        }
        if closed {
            return None;
        }
        match ring.wait {
            WaitMode::Spin => thread::yield_now(),
            _ => ring.sleep_for_message(index, None, || ring.is_closed(End::Sender)),
        }
    }
}

fn model(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// `count` messages arrive in order, then the channel is closed.
fn all_arrive(capacity: u64, count: u8, wait: WaitMode) {
    let sender = ring(capacity, wait);
    let receiver = sender.clone();
    let sending = thread::spawn(move || {
        for value in 0..count {
            assert!(send(&sender, value.into(), value + 1));
        }
        sender.close(End::Sender);
    });
    for value in 0..count {
        assert_eq!(recv(&receiver, value.into()), Some(value + 1));
    }
    assert_eq!(recv(&receiver, count.into()), None);
    sending.join().unwrap();
}

/// Messages and free space become visible to the other end. Descriptors of one lap are not mistaken
/// for those of the next.
#[test]
fn messages_and_space_become_visible() {
    model(None, || all_arrive(1, 2, WaitMode::Spin));
    model(Some(4), || all_arrive(2, 3, WaitMode::Spin));
}

/// No wake-up is lost: neither end misses that the other falls asleep.
#[test]
fn sleepers_are_woken() {
    model(None, || all_arrive(1, 1, WaitMode::Block));
    model(Some(3), || all_arrive(1, 2, WaitMode::Block));
    model(Some(3), || all_arrive(2, 3, WaitMode::Block));
}

/// A sender that sleeps at a full ring wakes when the receiver closes.
#[test]
fn closing_wakes_the_sender() {
    model(None, || {
        let sender = ring(1, WaitMode::Block);
        let receiver = sender.clone();
        let sending = thread::spawn(move || {
            assert!(send(&sender, 0, 1));
            assert!(!send(&sender, 1, 2));
        });
        receiver.close(End::Receiver);
        sending.join().unwrap();
    });
}
