//! The Rust types and byte layouts of a message with a topic and data. Covers the layouts that need
//! no library (by hand) and those where the program chooses the library (postcard).

use std::io::{self, ErrorKind};

use estafette_measure::message::Message;
use estafette_measure::spec::Ownership;
use estafette_measure::{Generator, Value, Verifier};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The length of a topic in bytes.
const TOPIC: usize = size_of::<u32>();
/// The most bytes that postcard writes before the data: a topic and a length as varints with seven
/// bits per byte.
const POSTCARD_HEAD: usize = 5 + 10;

/// A message type that serde serializes.
pub trait Shape: Value + Serialize + DeserializeOwned {
    /// The name of this type in the row's name.
    const NAME: &'static str;
    /// The type's declaration, for display.
    const TYPE: &'static str;
}

/// A derived implementation: serde serializes the data as a sequence of numbers.
impl Shape for Message {
    const NAME: &'static str = "plain";
    const TYPE: &'static str = "struct { u32, Vec<u8> }";
}

/// The same fields with `serde_bytes`, so that serde copies the data as one block of bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SerdeBytes {
    topic: u32,
    #[serde(with = "serde_bytes")]
    data: Vec<u8>,
}

impl Value for SerdeBytes {
    #[inline]
    fn make(source: &mut Generator) -> SerdeBytes {
        let Message { topic, data } = Message::make(source);
        SerdeBytes { topic, data }
    }

    #[inline]
    fn check(&self, verifier: &mut Verifier) {
        verifier.message(self.topic, &self.data);
    }
}

impl Shape for SerdeBytes {
    const NAME: &'static str = "serde-bytes";
    const TYPE: &'static str = "struct { u32, #[serde(with = \"serde_bytes\")] Vec<u8> }";
}

/// Topic and data in one vector, laid out by the program. Serde serializes it as a sequence of
/// numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Newtype(Vec<u8>);

impl Value for Newtype {
    #[inline]
    fn make(source: &mut Generator) -> Newtype {
        let mut bytes = vec![0; ByHand::most(source.len())];
        ByHand::fill(source, &mut bytes);
        Newtype(bytes)
    }

    #[inline]
    fn check(&self, verifier: &mut Verifier) {
        ByHand::check(&self.0, verifier);
    }
}

impl Shape for Newtype {
    const NAME: &'static str = "newtype";
    const TYPE: &'static str = "struct(Vec<u8>)";
}

/// A byte layout of a message in a buffer that the program sends as bytes.
pub trait Layout: Send + Sync + 'static {
    /// The name of this layout in the row's name.
    const NAME: &'static str;
    /// A description of the buffer's content.
    const SAYS: &'static str;
    /// Whether both sides have a value of their own, or only bytes in the buffer.
    const OWNERSHIP: Ownership = Ownership::Borrowed;

    /// The longest message, in bytes, for `data` bytes of data.
    fn most(data: usize) -> usize;

    /// Generates the next message and writes it into a buffer of [`most`](Layout::most) bytes.
    /// Returns the number of bytes written.
    fn write(source: &mut Generator, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads and verifies a message.
    fn read(bytes: &[u8], verifier: &mut Verifier) -> io::Result<()>;
}

/// The data without a topic.
pub struct DataAlone;

impl Layout for DataAlone {
    const NAME: &'static str = "bytes";
    const SAYS: &'static str = "the data alone";

    fn most(data: usize) -> usize {
        data
    }

    #[inline(always)]
    fn write(source: &mut Generator, buffer: &mut [u8]) -> io::Result<usize> {
        source.fill(buffer);
        Ok(buffer.len())
    }

    #[inline(always)]
    fn read(bytes: &[u8], verifier: &mut Verifier) -> io::Result<()> {
        verifier.bytes(bytes);
        Ok(())
    }
}

/// The topic (little-endian) and then the data, written and read in place.
pub struct ByHand;

impl ByHand {
    #[inline(always)]
    fn fill(source: &mut Generator, buffer: &mut [u8]) {
        let (topic, data) = buffer.split_at_mut(TOPIC);
        topic.copy_from_slice(&source.message(data).to_le_bytes());
    }

    /// Returns the topic and the data, or `None` if the bytes are too short for a topic.
    #[inline(always)]
    pub fn parts(bytes: &[u8]) -> Option<(u32, &[u8])> {
        bytes.split_first_chunk().map(|(topic, data)| (u32::from_le_bytes(*topic), data))
    }

    #[inline(always)]
    fn check(bytes: &[u8], verifier: &mut Verifier) {
        // A message too short for a topic is verified as one without data, which fails.
        let (topic, data) = ByHand::parts(bytes).unwrap_or_default();
        verifier.message(topic, data);
    }
}

impl Layout for ByHand {
    const NAME: &'static str = "by-hand";
    const SAYS: &'static str = "topic and data laid out by hand";

    fn most(data: usize) -> usize {
        TOPIC + data
    }

    #[inline(always)]
    fn write(source: &mut Generator, buffer: &mut [u8]) -> io::Result<usize> {
        ByHand::fill(source, buffer);
        Ok(buffer.len())
    }

    #[inline(always)]
    fn read(bytes: &[u8], verifier: &mut Verifier) -> io::Result<()> {
        ByHand::check(bytes, verifier);
        Ok(())
    }
}

/// A struct that postcard serializes into the buffer, and deserializes into a new value.
pub struct Postcard;

impl Layout for Postcard {
    const NAME: &'static str = "postcard";
    const SAYS: &'static str = "postcard of a struct with serde_bytes";
    const OWNERSHIP: Ownership = Ownership::Owned;

    fn most(data: usize) -> usize {
        POSTCARD_HEAD + data
    }

    #[inline(always)]
    fn write(source: &mut Generator, buffer: &mut [u8]) -> io::Result<usize> {
        match postcard::to_slice(&SerdeBytes::make(source), buffer) {
            Ok(written) => Ok(written.len()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    #[inline(always)]
    fn read(bytes: &[u8], verifier: &mut Verifier) -> io::Result<()> {
        match postcard::from_bytes::<SerdeBytes>(bytes) {
            Ok(message) => {
                message.check(verifier);
                Ok(())
            }
            Err(error) => Err(io::Error::new(ErrorKind::InvalidData, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use estafette_measure::message::Faults;
    use proptest::prelude::*;

    use super::*;

    const SEED: u64 = 0x5EED;

    fn round_trips<L: Layout>(len: usize) {
        let (mut source, mut verifier) = (Generator::new(SEED, 0, len), Verifier::new(SEED, 1, len));
        let mut buffer = vec![0xAA; L::most(len)];
        for number in 0..4 {
            if number == 3 {
                source.end();
            }
            let written = L::write(&mut source, &mut buffer).unwrap();
            L::read(&buffer[..written], &mut verifier).unwrap();
        }
        assert!(verifier.ended());
        assert_eq!((verifier.received(), verifier.finish().1), (3, Faults::default()));
    }

    /// Arbitrary bytes neither count as a message nor panic.
    fn rejects_without_panic<L: Layout>(bytes: &[u8]) {
        let mut verifier = Verifier::new(SEED, 1, 16);
        let _ = L::read(bytes, &mut verifier);
        assert_eq!(verifier.received(), 0);
    }

    proptest! {
        #[test]
        fn each_layout_round_trips(len in 8usize..5000) {
            round_trips::<DataAlone>(len);
            round_trips::<ByHand>(len);
            round_trips::<Postcard>(len);
        }

        #[test]
        fn arbitrary_bytes_are_rejected_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            rejects_without_panic::<DataAlone>(&bytes);
            rejects_without_panic::<ByHand>(&bytes);
            rejects_without_panic::<Postcard>(&bytes);
        }
    }

    #[test]
    fn a_newtype_contains_topic_and_data() {
        let mut source = Generator::new(SEED, 0, 16);
        let Newtype(bytes) = Newtype::make(&mut source.clone());
        let Message { topic, data } = Message::make(&mut source);
        assert_eq!(ByHand::parts(&bytes), Some((topic, &*data)));
    }
}
