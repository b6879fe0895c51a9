//! What writes messages down as bytes and reads them back: measured by itself, in one thread.
//!
//! Each takes the same message, a topic and data. Where a library works through serde there is a row for what a program
//! gets that derives the traits and says no more, and one with `serde_bytes`.

use estafette_contest_common::typed::{SerdeBytes, Shape};
use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::entry::codec;
use estafette_measure::message::Message;
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::{Registry, Spec};

mod bincode_1;
mod bincode_2;
mod bitcode;
mod by_hand;
mod limit_copy;
mod postcard;
mod rkyv;
mod serde_json;
mod wincode;
mod written;

/// Adds all of them.
pub(crate) fn enrol(registry: Registry) -> Registry {
    registry
        .enrol(codec::<bincode_1::Bincode1<Message>>())
        .enrol(codec::<bincode_1::Bincode1<SerdeBytes>>())
        .enrol(codec::<bincode_2::Bincode2>())
        .enrol(codec::<bincode_2::Bincode2Serde<Message>>())
        .enrol(codec::<bincode_2::Bincode2Serde<SerdeBytes>>())
        .enrol(codec::<postcard::Postcard<Message>>())
        .enrol(codec::<postcard::Postcard<SerdeBytes>>())
        .enrol(codec::<wincode::Wincode>())
        .enrol(codec::<bitcode::Bitcode>())
        .enrol(codec::<bitcode::BitcodeSerde<Message>>())
        .enrol(codec::<bitcode::BitcodeSerde<SerdeBytes>>())
        .enrol(codec::<rkyv::Rkyv>())
        .enrol(codec::<rkyv::RkyvUnchecked>())
        .enrol(codec::<serde_json::SerdeJson<Message>>())
        .enrol(codec::<serde_json::SerdeJson<SerdeBytes>>())
        .enrol(codec::<by_hand::ByHand>())
        .enrol(codec::<limit_copy::LimitCopy>())
}

/// A codec's description. A message that is read back is the program's own, unless it says otherwise.
fn spec(name: &str, version: &str, implementation: &str) -> Spec {
    Spec::new(&format!("thread/{name}"))
        .version(version)
        .implementation(implementation)
        .patterns(&[Pattern::Codec])
        .payloads(&[PayloadKind::Message])
        .ownership(Ownership::Owned)
        .tier(Tier::Suite)
}

/// What the row of a shape is called: `library.serde-bytes`, and where there is nothing to say of the shape `library`, or
/// what else tells it from others.
fn variant<M: Shape>(library: &str, plain: &str) -> String {
    match M::NAME {
        "plain" => format!("{library}{plain}"),
        name => format!("{library}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use estafette_measure::message::Faults;
    use estafette_measure::{Codec, Generator, Verifier};
    use proptest::prelude::*;

    use super::*;

    /// Messages come back as they were: every codec writes over what was in its buffer before, longer or not.
    fn round_trips<C: Codec>(seed: u64, len: usize) {
        let name = C::spec().name;
        let (mut source, mut verifier) = (Generator::new(seed, 0, len), Verifier::new(seed, 1, len));
        let mut codec = C::default();
        let mut encoded = C::Encoded::default();
        let long = C::make(&mut Generator::new(seed, 0, 2 * len));
        codec.encode(&long, &mut encoded).unwrap();
        for number in 0..4 {
            if number == 3 {
                source.end();
            }
            codec.encode(&C::make(&mut source), &mut encoded).unwrap();
            assert!(encoded.as_ref().len() >= len, "{name}: pseudo-random content cannot be compressed");
            codec.decode(&encoded, &mut verifier).unwrap();
        }
        assert!(verifier.ended(), "{name}");
        assert_eq!((verifier.received(), verifier.finish().1), (3, Faults::default()), "{name}");
    }

    /// Checks that changed bytes cause only an error or another message.
    fn rejects_without_panic<C: Codec<Encoded: AsMut<[u8]>>>(seed: u64, len: usize, bit: usize) {
        let (mut source, mut verifier) = (Generator::new(seed, 0, len), Verifier::new(seed, 1, len));
        let mut codec = C::default();
        let mut encoded = C::Encoded::default();
        codec.encode(&C::make(&mut source), &mut encoded).unwrap();
        let bytes = encoded.as_mut();
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let _ = codec.decode(&encoded, &mut verifier);
        // The end mark and other producers' messages differ in more than one bit.
        assert!(!verifier.ended(), "{}: bit {bit}", C::spec().name);
    }

    macro_rules! each {
        ($of:ident $arguments:tt: $($codec:ty),+ $(,)?) => { $($of::<$codec> $arguments;)+ };
    }

    proptest! {
        #[test]
        fn messages_come_back(seed in 0u64..1 << 53, len in 8usize..3000) {
            each!(round_trips(seed, len):
                bincode_1::Bincode1<Message>, bincode_1::Bincode1<SerdeBytes>, bincode_2::Bincode2,
                bincode_2::Bincode2Serde<Message>, bincode_2::Bincode2Serde<SerdeBytes>, postcard::Postcard<Message>,
                postcard::Postcard<SerdeBytes>, wincode::Wincode, bitcode::Bitcode, bitcode::BitcodeSerde<Message>,
                bitcode::BitcodeSerde<SerdeBytes>, rkyv::Rkyv, rkyv::RkyvUnchecked, serde_json::SerdeJson<Message>,
                serde_json::SerdeJson<SerdeBytes>, by_hand::ByHand, limit_copy::LimitCopy,
            );
        }

        // All but those that say that they trust the bytes: what is not checked, and what sets no limit to a length.
        #[test]
        fn changed_bytes_are_survived(seed in 0u64..1 << 53, len in 8usize..100, bit: usize) {
            each!(survives(seed, len, bit):
                bincode_1::Bincode1<Message>, bincode_1::Bincode1<SerdeBytes>, bincode_2::Bincode2Serde<Message>,
                postcard::Postcard<Message>, postcard::Postcard<SerdeBytes>, wincode::Wincode, bitcode::Bitcode,
                bitcode::BitcodeSerde<Message>, bitcode::BitcodeSerde<SerdeBytes>, rkyv::Rkyv,
                serde_json::SerdeJson<Message>, serde_json::SerdeJson<SerdeBytes>, by_hand::ByHand,
                limit_copy::LimitCopy,
            );
        }
    }
}
