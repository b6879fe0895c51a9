//! Tests of the ring on the heap and in a mapping.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;

use super::{
    Closed, Consumer, Error, Opening, Producer, Shape, Wait, create_shared, heap, lay_out, open_consumer, open_producer,
};

const WAITS: [Wait; 3] = [Wait::Spin, Wait::Futex, Wait::Eventfd];

fn shape(slot: usize, capacity: usize) -> Shape {
    Shape::new(slot, capacity).unwrap()
}

/// Creates both ends in this process, each with its own mapping.
fn mapped(shape: Shape, wait: Wait) -> (Producer, Consumer) {
    let file = create_shared(shape, wait).unwrap();
    let [filled, freed] = [(); 2].map(|()| eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let (fills, frees) = (filled.try_clone().unwrap(), freed.try_clone().unwrap());
    let opening = || Opening::new(file.as_fd(), shape, wait);
    let producer = opening().sleeping_on(fills, freed).producer();
    (producer.unwrap(), opening().sleeping_on(filled, frees).consumer().unwrap())
}

type Make = fn(Shape, Wait) -> (Producer, Consumer);

/// Runs a test for each kind of memory and each way of waiting.
fn each_kind(test: impl Fn(Make, Wait)) {
    for wait in WAITS {
        test(|shape, wait| heap(shape, wait).unwrap(), wait);
        test(mapped, wait);
    }
}

fn try_send(producer: &mut Producer, value: u64) -> bool {
    producer
        .try_slot()
        .map(|mut slot| {
            slot.copy_from_slice(&value.to_ne_bytes());
            slot.commit()
        })
        .is_some()
}

fn try_recv(consumer: &mut Consumer) -> Option<u64> {
    let message = consumer.try_message()?;
    let value = u64::from_ne_bytes(message[..].try_into().unwrap());
    message.release();
    Some(value)
}

#[test]
fn a_shape_rounds_up() {
    assert_eq!(shape(8, 1000).slots(), 1024);
    assert_eq!(shape(8, 1).slots(), 1);
    for (slot, stride) in [(1, 8), (8, 8), (9, 16), (24, 32), (64, 64), (65, 128), (4096, 4096), (5000, 5056)] {
        assert_eq!(shape(slot, 4).stride(), stride, "of {slot} bytes");
        assert_eq!(shape(slot, 4).bytes(), 4 * stride);
    }
}

#[test]
fn an_impossible_shape_is_an_error() {
    let most = Shape::MOST_BYTES;
    assert_eq!(shape(1 << 20, 1 << 12).bytes(), most);
    let absurd = [0, 1, 8, most + 1, usize::MAX / 2, usize::MAX / 2 + 2, usize::MAX - 63, usize::MAX];
    for slot in absurd {
        for capacity in absurd {
            if let Ok(shape) = Shape::new(slot, capacity) {
                assert!([1, 8].contains(&slot) && [1, 8].contains(&capacity), "{shape:?}");
            }
        }
    }
    assert!(Shape::new(0, 1).unwrap_err().to_string().contains("holds nothing"));
    assert!(Shape::new(1, usize::MAX).unwrap_err().to_string().contains("lower one of them"));
}

#[test]
fn fills_and_empties() {
    each_kind(|make, wait| {
        let (mut producer, mut consumer) = make(shape(8, 4), wait);
        assert_eq!(try_recv(&mut consumer), None);
        for round in 0..3 {
            for value in 0..4 {
                assert!(try_send(&mut producer, 10 * round + value));
            }
            assert!(!try_send(&mut producer, 99));
            for value in 0..4 {
                assert_eq!(try_recv(&mut consumer), Some(10 * round + value));
            }
            assert_eq!(try_recv(&mut consumer), None);
        }
    });
}

#[test]
fn wraps_around_the_ring_and_the_index() {
    each_kind(|make, wait| {
        let (mut producer, mut consumer) = make(shape(8, 4), wait);
        let begin = u64::MAX - 5;
        producer.start_at(begin);
        consumer.start_at(begin);
        for value in 0..20 {
            for extra in 0..3 {
                assert!(try_send(&mut producer, 3 * value + extra));
            }
            for extra in 0..3 {
                assert_eq!(try_recv(&mut consumer), Some(3 * value + extra));
            }
        }
    });
}

#[test]
fn a_ring_of_one_slot() {
    each_kind(|make, wait| {
        let (mut producer, mut consumer) = make(shape(8, 1), wait);
        for value in 0..5 {
            assert!(try_send(&mut producer, value));
            assert!(!try_send(&mut producer, 99));
            assert_eq!(try_recv(&mut consumer), Some(value));
            assert_eq!(try_recv(&mut consumer), None);
        }
    });
}

#[test]
fn slots_do_not_overlap() {
    for slot in [1, 7, 8, 24, 63, 64, 65, 1000, 4096] {
        each_kind(|make, wait| {
            let (mut producer, mut consumer) = make(shape(slot, 8), wait);
            for value in 0..8 {
                let mut place = producer.try_slot().unwrap();
                assert_eq!(place.len(), slot);
                place.fill(value + 1);
                place.commit();
            }
            for value in 0..8 {
                let message = consumer.try_message().unwrap();
                assert_eq!(*message, *vec![value + 1; slot]);
                message.release();
            }
        });
    }
}

#[test]
fn a_slot_that_is_dropped_is_not_sent() {
    let (mut producer, mut consumer) = heap(shape(8, 2), Wait::Spin).unwrap();
    producer.try_slot().unwrap().fill(1);
    assert_eq!(try_recv(&mut consumer), None);
    assert!(try_send(&mut producer, 7));
    assert_eq!(try_recv(&mut consumer), Some(7));
}

#[test]
fn an_unreleased_message_keeps_its_slot() {
    let (mut producer, mut consumer) = heap(shape(8, 1), Wait::Spin).unwrap();
    assert!(try_send(&mut producer, 7));
    let message = consumer.try_message().unwrap();
    assert!(!try_send(&mut producer, 8));
    assert_eq!(message[..], 7u64.to_ne_bytes());
    message.release();
    assert!(try_send(&mut producer, 8));
}

#[test]
fn a_dropped_message_is_received_again() {
    let (mut producer, mut consumer) = heap(shape(8, 2), Wait::Spin).unwrap();
    assert!(try_send(&mut producer, 7));
    assert_eq!(consumer.try_message().unwrap()[..], 7u64.to_ne_bytes());
    assert_eq!(try_recv(&mut consumer), Some(7));
    assert_eq!(try_recv(&mut consumer), None);
}

#[test]
fn a_closed_ring_delivers_what_was_sent() {
    each_kind(|make, wait| {
        let (mut producer, mut consumer) = make(shape(8, 4), wait);
        assert!(try_send(&mut producer, 1) && try_send(&mut producer, 2));
        assert!(!consumer.is_closed());
        drop(producer);
        assert!(consumer.is_closed());
        for value in [1, 2] {
            let message = consumer.wait_message().unwrap();
            assert_eq!(message[..], u64::to_ne_bytes(value));
            message.release();
        }
        assert_eq!(consumer.wait_message().unwrap_err(), Closed);
        assert!(consumer.try_message().is_none());
    });
}

#[test]
fn a_full_ring_without_consumer_is_closed() {
    each_kind(|make, wait| {
        let (mut producer, consumer) = make(shape(8, 2), wait);
        assert!(!producer.is_closed());
        drop(consumer);
        assert!(producer.is_closed());
        for _ in 0..2 {
            producer.wait_slot().unwrap().commit();
        }
        assert_eq!(producer.wait_slot().unwrap_err(), Closed);
    });
}

#[test]
fn closing_wakes_a_sleeping_end() {
    each_kind(|make, wait| {
        let (producer, mut consumer) = make(shape(8, 2), wait);
        // An end that is not woken waits for ever.
        thread::scope(|scope| {
            scope.spawn(move || assert!(consumer.wait_message().is_err()));
            thread::sleep(Duration::from_millis(50));
            drop(producer);
        });
    });
}

/// Verifies every byte of every message, through a ring that is often full and often empty.
#[test]
fn order_and_content_under_stress() {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for (slot, capacity, messages) in [(8, 1, 300), (24, 2, 600), (4096, 4, 1_000), (8, 64, 100_000)] {
        each_kind(|make, wait| {
            // Two spinning ends on one core wait for the scheduler at each turn.
            if wait != Wait::Spin || cores > 1 {
                stress(make(shape(slot, capacity), wait), messages);
            }
        });
    }
}

fn stress((mut producer, mut consumer): (Producer, Consumer), messages: u64) {
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..messages {
                let mut slot = producer.wait_slot().unwrap();
                for (place, word) in slot.as_chunks_mut().0.iter_mut().zip(number..) {
                    *place = word.to_ne_bytes();
                }
                slot.commit();
            }
        });
        for number in 0..messages {
            let message = consumer.wait_message().unwrap();
            for (place, word) in message.as_chunks().0.iter().zip(number..) {
                assert_eq!(u64::from_ne_bytes(*place), word, "in message {number}");
            }
            message.release();
        }
        assert_eq!(consumer.wait_message().unwrap_err(), Closed);
    });
}

#[test]
fn ends_can_be_sent_to_threads() {
    fn is_send<T: Send>() {}
    is_send::<Producer>();
    is_send::<Consumer>();
}

/// Returns the error message of opening `file`.
fn error_of_opening(file: &OwnedFd, shape: Shape, wait: Wait) -> String {
    open_consumer(file, shape, wait).unwrap_err().to_string()
}

#[test]
fn opening_verifies_the_shape() {
    let file = create_shared(shape(64, 16), Wait::Spin).unwrap();
    assert!(
        error_of_opening(&file, shape(32, 16), Wait::Spin)
            .contains("bytes of a slot than it is opened with: 64, not 32")
    );
    assert!(
        error_of_opening(&file, shape(64, 32), Wait::Spin)
            .contains("number of slots than it is opened with: 16, not 32")
    );
    assert!(error_of_opening(&file, shape(64, 16), Wait::Futex).contains("waiting"));
    open_consumer(&file, shape(64, 16), Wait::Spin).unwrap();
}

#[test]
fn opening_verifies_the_header() {
    let shape = shape(64, 16);
    let corrupt = |offset, byte: u8| {
        let file = create_shared(shape, Wait::Spin).unwrap();
        pwrite(&file, &[byte], offset).unwrap();
        error_of_opening(&file, shape, Wait::Spin)
    };
    assert!(corrupt(0, 0).contains("first bytes"));
    assert!(corrupt(8, 77).contains("version 77"));
    assert!(corrupt(16, 9).contains("waiting"));
    assert!(corrupt(24, 0xff).contains("bytes of a slot"));
    assert!(corrupt(39, 0xff).contains("number of slots"));
}

#[test]
fn opening_verifies_the_file() {
    let shape = shape(64, 16);
    let seals = SealFlags::SHRINK | SealFlags::GROW;
    let file = || memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();

    assert!(
        error_of_opening(&std::fs::File::open("/dev/null").unwrap().into(), shape, Wait::Spin)
            .contains("not a memory file")
    );

    let unsealed = file();
    assert!(error_of_opening(&unsealed, shape, Wait::Spin).contains("not sealed"));

    let empty = file();
    fcntl_add_seals(&empty, seals).unwrap();
    assert!(error_of_opening(&empty, shape, Wait::Spin).contains("0 bytes are no header"));

    let short = file();
    let header = create_shared(shape, Wait::Spin).unwrap();
    let mut bytes = [0; 40];
    rustix::io::pread(&header, &mut bytes, 0).unwrap();
    fallocate(&short, FallocateFlags::empty(), 0, 100).unwrap();
    pwrite(&short, &bytes, 0).unwrap();
    fcntl_add_seals(&short, seals).unwrap();
    assert!(
        error_of_opening(&short, shape, Wait::Spin).contains("size in bytes than it is opened with: 100, not 1408")
    );
}

#[test]
fn an_unsealed_file_needs_an_explicit_option() {
    let shape = shape(64, 16);
    let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
    lay_out(&file, shape, Wait::Futex).unwrap();
    assert!(error_of_opening(&file, shape, Wait::Futex).contains("not sealed"));
    // SAFETY: nobody else has the file.
    let opening = || unsafe { Opening::new(file.as_fd(), shape, Wait::Futex).unsealed() };
    let (mut producer, mut consumer) = (opening().producer().unwrap(), opening().consumer().unwrap());
    producer.wait_slot().unwrap().commit();
    consumer.wait_message().unwrap().release();
}

#[test]
fn eventfds_are_required_and_only_for_eventfd_waiting() {
    let shape = shape(64, 16);
    let file = create_shared(shape, Wait::Eventfd).unwrap();
    assert!(error_of_opening(&file, shape, Wait::Futex).contains("waiting"));
    assert!(error_of_opening(&file, shape, Wait::Eventfd).contains("no eventfds"));
}

#[test]
fn a_ring_cannot_shrink() {
    let file = create_shared(shape(64, 16), Wait::Spin).unwrap();
    assert!(ftruncate(&file, 0).is_err());
    assert!(ftruncate(&file, 1 << 20).is_err());
}

#[test]
fn each_end_is_opened_once() {
    let shape = shape(64, 16);
    let file = create_shared(shape, Wait::Spin).unwrap();
    let producer = open_producer(&file, shape, Wait::Spin).unwrap();
    assert!(matches!(open_producer(&file, shape, Wait::Spin), Err(Error::AlreadyOpened { end: "producer" })));
    drop(producer);
    assert!(matches!(open_producer(&file, shape, Wait::Spin), Err(Error::AlreadyOpened { .. })));
    let consumer = open_consumer(&file, shape, Wait::Spin).unwrap();
    assert!(consumer.is_closed());
}

/// An end stays within its ring and its calls return or block, whatever a peer writes into the
/// control words.
#[test]
fn a_hostile_peer_causes_no_access_outside_the_ring() {
    let shape = shape(8, 4);
    for index in [1, 4, 5, 1 << 40, u64::MAX, u64::MAX - 4] {
        let file = create_shared(shape, Wait::Spin).unwrap();
        let mut producer = open_producer(&file, shape, Wait::Spin).unwrap();
        let mut consumer = open_consumer(&file, shape, Wait::Spin).unwrap();
        for lane in [128, 256] {
            pwrite(&file, &index.to_ne_bytes(), lane).unwrap();
            pwrite(&file, &[0xff; 4], lane + 8).unwrap();
        }
        for value in 0..20 {
            try_send(&mut producer, value);
            pwrite(&file, &index.to_ne_bytes(), 128).unwrap();
            try_recv(&mut consumer);
            pwrite(&file, &index.to_ne_bytes(), 256).unwrap();
        }
        assert!(producer.is_closed() && consumer.is_closed());
    }
}
