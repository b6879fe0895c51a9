//! Typed messages: a value with two fields, which is serialized before it leaves its process and
//! deserialized where it arrives.

use serde::{Deserialize, Serialize};

use super::{Generator, Value, Verifier};

/// A topic and some data, as in `ipc-channel-throughput`. For serde the data is a sequence of
/// numbers and not bytes, as in every program that only derives the two traits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The topic: four bytes that are computed from the tag and the secret.
    pub topic: u32,
    /// The message's bytes.
    pub data: Vec<u8>,
}

impl Value for Message {
    #[inline]
    fn make(source: &mut Generator) -> Message {
        let mut data = vec![0; source.len()];
        let topic = source.message(&mut data);
        Message { topic, data }
    }

    #[inline]
    fn check(&self, verifier: &mut Verifier) {
        verifier.message(self.topic, &self.data);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Faults;
    use super::*;

    const SEED: u64 = 0x5EED;
    const SECRET: u64 = 0x5EC2E7;

    /// Three messages and the end mark.
    fn messages(len: usize) -> Vec<Message> {
        let mut source = Generator::new(SEED, 0, len).with_secret(SECRET);
        let mut all: Vec<_> = (0..3).map(|_| Message::make(&mut source)).collect();
        source.end();
        all.push(Message::make(&mut source));
        all
    }

    fn faults(len: usize, messages: &[Message]) -> Faults {
        let mut verifier = Verifier::new(SEED, 1, len).with_secret(SECRET);
        messages.iter().for_each(|message| message.check(&mut verifier));
        assert!(verifier.ended());
        verifier.finish().1
    }

    proptest! {
        #[test]
        fn undamaged_messages_have_no_faults(len in 8usize..200) {
            prop_assert_eq!(faults(len, &messages(len)), Faults::default());
        }

        #[test]
        fn any_flipped_bit_is_damage(len in 8usize..200, at in 0usize..3, bit in 0usize..1632) {
            let mut all = messages(len);
            match bit % (32 + len * 8) {
                bit @ ..32 => all[at].topic ^= 1 << bit,
                bit => all[at].data[(bit - 32) / 8] ^= 1 << (bit % 8),
            }
            prop_assert_eq!(faults(len, &all), Faults { damaged: 1, lost: 1, ..Faults::default() });
        }

        #[test]
        fn arbitrary_messages_do_not_panic(topic: u32, data in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut verifier = Verifier::new(SEED, 1, 16);
            verifier.message(topic, &data);
            prop_assert_eq!(verifier.received(), 0);
        }
    }

    #[test]
    fn the_topics_of_two_messages_differ() {
        let all = messages(64);
        assert_ne!(all[0].topic, all[1].topic);
    }
}
