//! Loom models of the ring. Loom runs every order of events, and every value each load may see, for
//! a few messages.
//!
//! A lost wake-up is a deadlock here, because the modelled futex has no timeout.

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

fn recv(consumer: &mut Consumer) -> Result<u8, Closed> {
    let message = consumer.wait_message()?;
    let value = message[0];
    message.release();
    Ok(value)
}

/// Checks all orders of events.
const UNLIMITED: Option<usize> = None;

/// Limits the number of preemptions to five; loom's authors recommend two or three.
const FIVE_PREEMPTIONS: Option<usize> = Some(5);

fn model(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

/// A producer sends `count` messages and is dropped. The consumer gets all of them in order, then
/// `Closed`.
fn all_arrive(slots: usize, count: u8, wait: Wait) {
    let (mut producer, mut consumer) = modelled(shape(slots), wait);
    let sender = thread::spawn(move || {
        for value in 1..=count {
            send(&mut producer, value).unwrap();
        }
    });
    for value in 1..=count {
        assert_eq!(recv(&mut consumer), Ok(value));
    }
    assert_eq!(recv(&mut consumer), Err(Closed));
    sender.join().unwrap();
}

/// Slots are passed in both directions: the producer writes a slot again that the consumer has
/// read.
#[test]
fn contents_are_handed_over() {
    model(UNLIMITED, || all_arrive(1, 2, Wait::Spin));
    model(UNLIMITED, || all_arrive(2, 3, Wait::Spin));
}

/// Neither end misses that the other falls asleep.
#[test]
fn sleepers_are_woken() {
    model(UNLIMITED, || all_arrive(1, 1, Wait::Futex));
    model(FIVE_PREEMPTIONS, || all_arrive(1, 2, Wait::Futex));
    model(FIVE_PREEMPTIONS, || all_arrive(2, 3, Wait::Futex));
}

/// The same with an eventfd. Its counter may still contain a wake-up for a sleeper that did not
/// sleep after all.
#[test]
fn sleepers_on_eventfds_are_woken() {
    model(UNLIMITED, || all_arrive(1, 1, Wait::Eventfd));
    model(FIVE_PREEMPTIONS, || all_arrive(1, 2, Wait::Eventfd));
}

/// An end that never waits wakes one that sleeps.
#[test]
fn try_send_wakes_a_sleeping_consumer() {
    model(FIVE_PREEMPTIONS, || {
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
        assert_eq!(recv(&mut consumer), Ok(1));
        assert_eq!(recv(&mut consumer), Ok(2));
        sender.join().unwrap();
    });
}

/// A producer that sleeps because the ring is full is woken when the consumer closes.
#[test]
fn closing_wakes_the_producer() {
    for wait in [Wait::Futex, Wait::Eventfd] {
        model(UNLIMITED, move || {
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

/// A consumer that sleeps because the ring is empty is woken when the producer closes, after the
/// last message.
#[test]
fn closing_wakes_the_consumer() {
    for wait in [Wait::Futex, Wait::Eventfd] {
        model(UNLIMITED, move || {
            let (mut producer, mut consumer) = modelled(shape(2), wait);
            let receiver = thread::spawn(move || {
                assert_eq!(recv(&mut consumer), Ok(1));
                assert_eq!(recv(&mut consumer), Err(Closed));
            });
            send(&mut producer, 1).unwrap();
            drop(producer);
            receiver.join().unwrap();
        });
    }
}

/// Two rings; each end waits for the other's reply.
#[test]
fn ping_pong() {
    model(UNLIMITED, || {
        let (mut request_tx, mut request_rx) = modelled(shape(1), Wait::Futex);
        let (mut reply_tx, mut reply_rx) = modelled(shape(1), Wait::Futex);
        let echo = thread::spawn(move || {
            let value = recv(&mut request_rx).unwrap();
            send(&mut reply_tx, value + 1).unwrap();
        });
        send(&mut request_tx, 1).unwrap();
        assert_eq!(recv(&mut reply_rx), Ok(2));
        echo.join().unwrap();
    });
}
