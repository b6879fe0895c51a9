//! Models of the ring: loom runs every order of events, and every value each load may see, for a few messages.
//!
//! A lost wake-up is a deadlock here, since the modelled futex has no time-out.

use loom::model::Builder;
use loom::thread;

use super::ring::modelled;
use super::{Closed, Consumer, Producer, Shape, Wait};

fn shape(slots: usize) -> Shape {
    Shape::new(1, slots).unwrap()
}

fn send(producer: &mut Producer, value: u8) -> Result<(), Closed> {
    let mut slot = producer.wait_slot()?;
    slot[0] = value;
    slot.commit();
    Ok(())
}

fn receive(consumer: &mut Consumer) -> Result<u8, Closed> {
    let message = consumer.wait_message()?;
    let value = message[0];
    message.release();
    Ok(value)
}

/// All orders of events.
const ALL: Option<usize> = None;

/// The orders in which a thread that could go on is stopped five times at most; loom's authors find two or three enough.
const MOST: Option<usize> = Some(5);

fn model(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// A producer sends `count` messages and is dropped; the consumer gets all of them, in order, then `Closed`.
fn all_arrive(slots: usize, count: u8, wait: Wait) {
    let (mut producer, mut consumer) = modelled(shape(slots), wait);
    let sender = thread::spawn(move || {
        for value in 1..=count {
            send(&mut producer, value).unwrap();
        }
    });
    for value in 1..=count {
        assert_eq!(receive(&mut consumer), Ok(value));
    }
    assert_eq!(receive(&mut consumer), Err(Closed));
    sender.join().unwrap();
}

/// Slots are handed over both ways, so that the producer writes again what the consumer has read.
#[test]
fn contents_are_handed_over() {
    model(ALL, || all_arrive(1, 2, Wait::Spin));
    model(ALL, || all_arrive(2, 3, Wait::Spin));
}

/// Neither end misses the other falling asleep.
#[test]
fn sleepers_are_woken() {
    model(ALL, || all_arrive(1, 1, Wait::Futex));
    model(MOST, || all_arrive(1, 2, Wait::Futex));
    model(MOST, || all_arrive(2, 3, Wait::Futex));
}

/// Nor does it on an eventfd, whose counter may hold what was meant for a sleeper that did not sleep in the end.
#[test]
fn sleepers_on_eventfds_are_woken() {
    model(ALL, || all_arrive(1, 1, Wait::Eventfd));
    model(MOST, || all_arrive(1, 2, Wait::Eventfd));
}

/// An end that never waits wakes one that sleeps.
#[test]
fn trying_wakes_too() {
    model(MOST, || {
        let (mut producer, mut consumer) = modelled(shape(1), Wait::Futex);
        let sender = thread::spawn(move || {
            let mut sent = 0;
            while sent < 2 {
                match producer.try_slot() {
                    Some(mut slot) => {
                        sent += 1;
                        slot[0] = sent;
                        slot.commit();
                    }
                    None => thread::yield_now(),
                }
            }
            producer
        });
        assert_eq!(receive(&mut consumer), Ok(1));
        assert_eq!(receive(&mut consumer), Ok(2));
        sender.join().unwrap();
    });
}

/// A producer that sleeps before a full ring is woken when the consumer goes.
#[test]
fn closing_wakes_the_producer() {
    for wait in [Wait::Futex, Wait::Eventfd] {
        model(ALL, move || {
            let (mut producer, consumer) = modelled(shape(1), wait);
            let sender = thread::spawn(move || {
                send(&mut producer, 1).unwrap();
                assert_eq!(send(&mut producer, 2), Err(Closed));
            });
            drop(consumer);
            sender.join().unwrap();
        });
    }
}

/// A consumer that sleeps before an empty ring is woken when the producer goes, and not before the last message.
#[test]
fn closing_wakes_the_consumer() {
    for wait in [Wait::Futex, Wait::Eventfd] {
        model(ALL, move || {
            let (mut producer, mut consumer) = modelled(shape(2), wait);
            let receiver = thread::spawn(move || {
                assert_eq!(receive(&mut consumer), Ok(1));
                assert_eq!(receive(&mut consumer), Err(Closed));
            });
            send(&mut producer, 1).unwrap();
            drop(producer);
            receiver.join().unwrap();
        });
    }
}

/// Two rings, each end waiting for the answer of the other.
#[test]
fn ping_pong() {
    model(ALL, || {
        let (mut to, mut from_caller) = modelled(shape(1), Wait::Futex);
        let (mut reply, mut answers) = modelled(shape(1), Wait::Futex);
        let echo = thread::spawn(move || {
            let value = receive(&mut from_caller).unwrap();
            send(&mut reply, value + 1).unwrap();
        });
        send(&mut to, 1).unwrap();
        assert_eq!(receive(&mut answers), Ok(2));
        echo.join().unwrap();
    });
}
