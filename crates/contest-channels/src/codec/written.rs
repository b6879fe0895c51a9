//! A message of a topic and data, as a program declares it that has libraries derive traits of their own for it.

use estafette_measure::Generator;
use estafette_measure::Value;
use estafette_measure::message::Message;

/// Each library's derive is about its own traits alone, so they can all stand on one type.
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
