//! The shapes that a message of a topic and data takes before it is written down, and the layouts of its bytes that need no
//! library, or that of the program's choice.

use std::io::{self, ErrorKind};

use estafette_measure::message::Message;
use estafette_measure::spec::Ownership;
use estafette_measure::{Generator, Value, Verifier};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The bytes of a topic.
const TOPIC: usize = size_of::<u32>();
/// The most that postcard puts before the data: a topic and a length, of seven bits a byte.
const POSTCARD_HEAD: usize = 5 + 10;

/// A value that serde writes down.
pub trait Shape: Value + Serialize + DeserializeOwned {
    /// What its rows are called.
    const NAME: &'static str;
    /// How a program declares it.
    const TYPE: &'static str;
}

/// What a program derives that says no more of its bytes than that they are numbers.
impl Shape for Message {
    const NAME: &'static str = "plain";
    const TYPE: &'static str = "struct { u32, Vec<u8> }";
}

/// The same with a word to serde that the data is bytes, to be copied at once.
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

/// Topic and data in one vector, which the program has laid out itself; to serde a sequence of numbers.
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

/// How a message lies in a buffer that the program sends as bytes.
pub trait Layout: Send + Sync + 'static {
    /// What its rows are called.
    const NAME: &'static str;
    /// What is in the buffer.
    const SAYS: &'static str;
    /// What becomes of a message: whether there is a value at both sides, or bytes alone.
    const OWNERSHIP: Ownership = Ownership::Borrowed;

    /// The most bytes that a message with so many of data takes.
    fn most(data: usize) -> usize;

    /// Makes the next message and lays it into a buffer of that many bytes. Returns how many it took.
    fn write(source: &mut Generator, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads a message.
    fn read(bytes: &[u8], verifier: &mut Verifier) -> io::Result<()>;
}

/// The data, and no topic.
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

/// The topic, little-endian, and the data, put and read where they lie.
pub struct ByHand;

impl ByHand {
    #[inline(always)]
    fn fill(source: &mut Generator, buffer: &mut [u8]) {
        let (topic, data) = buffer.split_at_mut(TOPIC);
        topic.copy_from_slice(&source.message(data).to_le_bytes());
    }

    /// The topic and the data; none where there is not even a topic.
    #[inline(always)]
    pub fn parts(bytes: &[u8]) -> Option<(u32, &[u8])> {
        bytes.split_first_chunk().map(|(topic, data)| (u32::from_le_bytes(*topic), data))
    }

    #[inline(always)]
    fn check(bytes: &[u8], verifier: &mut Verifier) {
        // What is shorter than a topic is damaged like a message without data.
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

/// A value that postcard writes into the buffer, and makes anew of it.
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

    /// Nothing that arrives is taken for a message, or stops the program.
    fn survives<L: Layout>(bytes: &[u8]) {
        let mut verifier = Verifier::new(SEED, 1, 16);
        let _ = L::read(bytes, &mut verifier);
        assert_eq!(verifier.received(), 0);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(len in 8usize..5000) {
            round_trips::<DataAlone>(len);
            round_trips::<ByHand>(len);
            round_trips::<Postcard>(len);
        }

        #[test]
        fn any_bytes_at_all_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            survives::<DataAlone>(&bytes);
            survives::<ByHand>(&bytes);
            survives::<Postcard>(&bytes);
        }
    }

    #[test]
    fn a_vector_holds_topic_and_data() {
        let mut source = Generator::new(SEED, 0, 16);
        let Newtype(bytes) = Newtype::make(&mut source.clone());
        let Message { topic, data } = Message::make(&mut source);
        assert_eq!(ByHand::parts(&bytes), Some((topic, &*data)));
    }
}
