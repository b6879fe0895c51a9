//! Messages that share a buffer, as a server passes one packet to many. Each producer has its own
//! buffer, as in async-channels-bench. If all had the same one, its reference count would move
//! between the cores of the producers too: a cost that no channel causes.

use bytes::Bytes;

use super::{Generator, Value, Verifier};

/// A tag and a clone of the producer's buffer.
///
/// Making a message increments the buffer's reference count, and dropping it decrements the count.
/// If the two ends run on different cores, the cache line of the count moves between them with
/// every message.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    tag: u64,
    body: Bytes,
}

impl Value for Shared {
    #[inline]
    fn make(source: &mut Generator) -> Shared {
        let body = source.shared().clone();
        Shared { tag: source.word(), body }
    }

    #[inline]
    fn check(&self, verifier: &mut Verifier) {
        verifier.shared(self.tag, &self.body);
    }
}

#[cfg(test)]
mod tests {
    use super::super::bodies::{is_shared_body, shared_body};
    use super::*;

    #[test]
    fn the_messages_of_a_producer_share_a_buffer_that_is_intact() {
        for len in [1, 7, 8, 100, 1200] {
            let mut source = Generator::new(1, 0, len);
            let (a, b) = (Shared::make(&mut source), Shared::make(&mut source));
            assert_eq!(a.body.as_ptr(), b.body.as_ptr());
            assert_ne!(a.body.as_ptr(), Shared::make(&mut source.of(1)).body.as_ptr());
            assert_eq!(a.body.len(), len);
            assert!(is_shared_body(&a.body));
            assert_ne!(a.tag, b.tag);
        }
    }

    #[test]
    fn a_changed_byte_is_detected_only_if_the_buffer_is_read() {
        for (at, reads) in [(0, true), (50, true), (99, true), (50, false)] {
            let mut bytes = shared_body(100).to_vec();
            bytes[at] ^= 1;
            let mut verifier = Verifier::new(1, 1, 100).with_body_checks(reads);
            let tag = Generator::new(1, 0, 100).word();
            verifier.shared(tag, &bytes);
            assert_eq!(verifier.finish().1.damaged, u64::from(reads));
        }
    }
}
