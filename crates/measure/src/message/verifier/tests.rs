use proptest::prelude::*;

use super::super::Generator;
use super::*;

const SEED: u64 = 0x5EED;
const SECRET: u64 = 0x5EC2E7;

fn messages(producer: usize, len: usize, count: usize) -> Vec<Vec<u8>> {
    let mut source = Generator::new(SEED, producer, len).with_secret(SECRET);
    let mut out: Vec<_> = (0..count).map(|_| next_message(&mut source)).collect();
    source.end();
    out.push(next_message(&mut source));
    out
}

fn next_message(source: &mut Generator) -> Vec<u8> {
    let mut bytes = vec![0xAA; source.len()];
    source.fill(&mut bytes);
    bytes
}

fn verify(len: usize, producers: usize, messages: &[Vec<u8>]) -> (u64, Faults, bool) {
    let mut verifier = Verifier::new(SEED, producers, len).with_secret(SECRET);
    for message in messages {
        verifier.bytes(message);
    }
    let (received, ended) = (verifier.received(), verifier.ended());
    (received, verifier.finish().1, ended)
}

#[test]
fn a_single_producer_of_several_is_verified() {
    for len in [3, 8, 20] {
        let mut verifier = Verifier::of_producer(SEED, 2, len).with_secret(SECRET);
        messages(2, len, 5).iter().for_each(|message| verifier.bytes(message));
        assert!(verifier.ended());
        let (counts, faults) = verifier.finish();
        assert_eq!((faults, counts.len()), (Faults::default(), 1));
        assert_eq!((counts[0].producer, counts[0].received, counts[0].announced), (2, 5, Some(5)));
    }
    // A message of another producer is damaged. A peer that echoes its input is found this way.
    for other in [1, 3] {
        let mut verifier = Verifier::of_producer(SEED, 2, 8);
        messages(other, 8, 5).iter().for_each(|message| verifier.bytes(message));
        assert!(verifier.found_damage() && verifier.ended(), "after damage no end mark is expected");
        assert_eq!(verifier.finish().1, Faults { damaged: 6, ..Faults::default() });
    }
}

proptest! {
    #[test]
    fn messages_in_order_have_no_faults(len in 1usize..200, count in 0usize..200) {
        prop_assert_eq!(verify(len, 1, &messages(0, len, count)), (count as u64, Faults::default(), true));
    }

    #[test]
    fn interleaved_producers_are_verified_separately(len in 8usize..64, picks in prop::collection::vec(0usize..3, 0..300)) {
        let mut streams: Vec<_> = (0..3).map(|p| messages(p, len, 100).into_iter()).collect();
        let mut all: Vec<_> = picks.iter().filter_map(|&p| streams[p].next()).collect();
        streams.iter_mut().for_each(|rest| all.extend(rest));
        prop_assert_eq!(verify(len, 3, &all), (300, Faults::default(), true));
    }

    #[test]
    fn any_flipped_bit_is_detected(len in 1usize..100, at in 0usize..50, bit in 0usize..800) {
        let mut all = messages(0, len, 50);
        let bit = bit % (len * 8);
        all[at][bit / 8] ^= 1 << (bit % 8);
        let (_, faults, _) = verify(len, 1, &all);
        // A flipped bit may turn a short message into the end mark, or cause a wrong count. There
        // is always a fault.
        prop_assert!(!faults.is_empty(), "{faults:?}");
        prop_assert!(len < 8 || faults.damaged == 1 && faults.lost == 1, "{faults:?}");
    }

    #[test]
    fn a_missing_message_is_lost(len in 8usize..100, at in 0usize..50) {
        let mut all = messages(0, len, 50);
        all.remove(at);
        prop_assert_eq!(verify(len, 1, &all), (49, Faults { lost: 1, ..Faults::default() }, true));
    }

    #[test]
    fn a_second_copy_is_a_duplicate(len in 8usize..100, at in 0usize..50, later in 0usize..50) {
        let mut all = messages(0, len, 50);
        let copy = all[at].clone();
        all.insert((at + 1 + later).min(50), copy);
        prop_assert_eq!(verify(len, 1, &all), (50, Faults { duplicated: 1, ..Faults::default() }, true));
    }

    #[test]
    fn two_swapped_messages_are_reordered(len in 8usize..100, at in 0usize..49) {
        let mut all = messages(0, len, 50);
        all.swap(at, at + 1);
        prop_assert_eq!(verify(len, 1, &all), (50, Faults { reordered: 1, ..Faults::default() }, true));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(junk in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..50)) {
        verify(16, 2, &junk);
        verify(3, 1, &junk);
    }
}

#[test]
fn the_number_of_the_last_message_is_its_own_although_others_are_lost_or_overtaken() {
    let all = messages(0, 16, 8);
    let mut verifier = Verifier::new(SEED, 1, 16).with_secret(SECRET);
    // 2 is overtaken by 4, and 5 is lost.
    for number in [0, 1, 3, 4, 2, 6, 7] {
        verifier.bytes(&all[number]);
        assert_eq!(verifier.last(), (0, number as u64));
    }
    assert_eq!(verifier.received(), 7);
}

#[test]
fn words_and_bytes_are_the_same_messages() {
    let mut words = Generator::new(SEED, 0, 8);
    let mut verifier = Verifier::new(SEED, 1, 8);
    for _ in 0..10 {
        verifier.word(words.word());
    }
    words.end();
    verifier.bytes(&words.word().to_le_bytes());
    assert!(verifier.ended());
    assert_eq!(verifier.finish().1, Faults::default());
}

#[test]
fn messages_without_bytes_are_counted_up_to_the_end_mark() {
    for (lost, total) in [(0, 10), (3, 10), (0, 0)] {
        let mut source = Generator::new(SEED, 0, 0);
        let mut verifier = Verifier::new(SEED, 1, 0);
        for _ in 0..total {
            assert_eq!(source.empty_message(), None);
        }
        for _ in lost..total {
            verifier.empty_message();
        }
        source.end();
        verifier.end_of_empty_messages(source.empty_message().unwrap());
        assert!(verifier.ended());
        let (counts, faults) = verifier.finish();
        assert_eq!((counts[0].received, counts[0].announced), (total - lost, Some(total)));
        assert_eq!(faults, Faults { lost, ..Faults::default() });
    }
}

#[test]
fn the_end_mark_reveals_messages_lost_just_before_it() {
    let mut all = messages(0, 8, 10);
    all.drain(5..10);
    assert_eq!(verify(8, 1, &all), (5, Faults { lost: 5, ..Faults::default() }, true));
}

#[test]
fn the_sum_of_squares_is_the_same_as_in_a_loop() {
    for n in 0..200u64 {
        assert_eq!(sum_of_squares(n), (0..n).map(|i| i * i).sum::<u64>(), "{n}");
    }
    let n = 1u128 << 36;
    assert_eq!(sum_of_squares(n as u64), (n * (n - 1) * (2 * n - 1) / 6) as u64);
}

#[test]
fn the_digests_of_a_divided_stream_add_up() {
    let mut source = Generator::new(SEED, 1, 8);
    let mut consumers = [(); 3].map(|()| Verifier::new(SEED, 2, 8).with_competitors(true));
    for n in 0..1000usize {
        consumers[n * n % 7 % 3].word(source.word());
    }
    let counts = consumers.into_iter().flat_map(|verifier| {
        let (counts, faults) = verifier.finish();
        assert_eq!(faults, Faults::default());
        counts
    });
    let counts: Vec<_> = counts.filter(|count| count.producer == 1).collect();
    assert_eq!(counts.iter().map(|count| count.received).sum::<u64>(), 1000);
    let sum = counts.iter().fold(0u64, |sum, count| sum.wrapping_add(count.digest));
    assert_eq!(sum, digest(1, 0, 1000));
    assert_ne!(sum, digest(1, 0, 999).wrapping_add(digest(1, 500, 1)), "a duplicate does not hide a loss");
}

#[test]
fn a_message_with_another_seed_is_damaged() {
    let mut verifier = Verifier::new(SEED + 1, 1, 8);
    verifier.word(Generator::new(SEED, 0, 8).word());
    assert_eq!(verifier.finish().1.damaged, 1);
}
