//! Serialization codecs: encode messages as bytes and decode them, measured alone in one thread.
//!
//! Each codec handles the same message, a topic and data. A library that uses serde has one row
//! with plainly derived traits and one with `serde_bytes`.

use estafette_contest_common::typed::SerdeBytes;
use estafette_measure::Registry;
use estafette_measure::entry::codec;
use estafette_measure::message::Message;

mod bincode_1;
mod bincode_2;
mod bitcode;
mod by_hand;
mod description;
mod limit_copy;
mod postcard;
mod rkyv;
mod serde_json;
mod wincode;
mod written;

/// Adds all codecs.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .register(codec::<bincode_1::Bincode1<Message>>())
        .register(codec::<bincode_1::Bincode1<SerdeBytes>>())
        .register(codec::<bincode_2::Bincode2>())
        .register(codec::<bincode_2::Bincode2Serde<Message>>())
        .register(codec::<bincode_2::Bincode2Serde<SerdeBytes>>())
        .register(codec::<postcard::Postcard<Message>>())
        .register(codec::<postcard::Postcard<SerdeBytes>>())
        .register(codec::<wincode::Wincode>())
        .register(codec::<bitcode::Bitcode>())
        .register(codec::<bitcode::BitcodeSerde<Message>>())
        .register(codec::<bitcode::BitcodeSerde<SerdeBytes>>())
        .register(codec::<rkyv::Rkyv>())
        .register(codec::<rkyv::RkyvUnchecked>())
        .register(codec::<serde_json::SerdeJson<Message>>())
        .register(codec::<serde_json::SerdeJson<SerdeBytes>>())
        .register(codec::<by_hand::ByHand>())
        .register(codec::<limit_copy::LimitCopy>())
}

#[cfg(test)]
mod tests {
    use estafette_measure::message::Faults;
    use estafette_measure::{Codec, Generator, Verifier};
    use proptest::prelude::*;

    use super::*;

    /// Checks that decoded messages equal the encoded ones. Each codec must overwrite a longer or
    /// shorter message in its buffer.
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
        assert!(!verifier.ended() || verifier.found_damage(), "{}: bit {bit}", C::spec().name);
    }

    macro_rules! each {
        ($of:ident $arguments:tt: $($codec:ty),+ $(,)?) => { $($of::<$codec> $arguments;)+ };
    }

    proptest! {
        #[test]
        fn each_codec_round_trips(seed in 0u64..1 << 53, len in 8usize..3000) {
            each!(round_trips(seed, len):
                bincode_1::Bincode1<Message>, bincode_1::Bincode1<SerdeBytes>, bincode_2::Bincode2,
                bincode_2::Bincode2Serde<Message>, bincode_2::Bincode2Serde<SerdeBytes>, postcard::Postcard<Message>,
                postcard::Postcard<SerdeBytes>, wincode::Wincode, bitcode::Bitcode, bitcode::BitcodeSerde<Message>,
                bitcode::BitcodeSerde<SerdeBytes>, rkyv::Rkyv, rkyv::RkyvUnchecked, serde_json::SerdeJson<Message>,
                serde_json::SerdeJson<SerdeBytes>, by_hand::ByHand, limit_copy::LimitCopy,
            );
        }

        // All codecs except those documented to trust their input: `RkyvUnchecked` does not check
        // it, and bincode 2's own traits do not limit lengths.
        #[test]
        fn changed_bytes_cause_no_panic(seed in 0u64..1 << 53, len in 8usize..100, bit: usize) {
            each!(rejects_without_panic(seed, len, bit):
                bincode_1::Bincode1<Message>, bincode_1::Bincode1<SerdeBytes>, bincode_2::Bincode2Serde<Message>,
                postcard::Postcard<Message>, postcard::Postcard<SerdeBytes>, wincode::Wincode, bitcode::Bitcode,
                bitcode::BitcodeSerde<Message>, bitcode::BitcodeSerde<SerdeBytes>, rkyv::Rkyv,
                serde_json::SerdeJson<Message>, serde_json::SerdeJson<SerdeBytes>, by_hand::ByHand,
                limit_copy::LimitCopy,
            );
        }
    }
}
