//! A message with a topic and data for libraries that derive their own traits.

use estafette_measure::Generator;
use estafette_measure::Value;
use estafette_measure::message::Message;

/// One type can derive the traits of all libraries, because they do not conflict.
#[derive(
    ::bincode_2::Encode,
    ::bincode_2::Decode,
    ::bitcode::Encode,
    ::bitcode::Decode,
    ::rkyv::Archive,
    ::rkyv::Serialize,
    ::wincode::SchemaRead,
    ::wincode::SchemaWrite,
)]
#[bincode(crate = "bincode_2")]
pub(super) struct Written {
    pub(super) topic: u32,
    pub(super) data: Vec<u8>,
}

impl Written {
    pub(super) fn make(source: &mut Generator) -> Written {
        let Message { topic, data } = Message::make(source);
        Written { topic, data }
    }
}
