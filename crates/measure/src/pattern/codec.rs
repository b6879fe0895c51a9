//! One thread serializes each message to bytes and deserializes it again; see [`crate::codec_driver`].

use super::rules::{Layout, Rules, TableKind};
use crate::bound::{Bound, Cost, Costs};
use crate::own_figures::{OwnFigures, OwnResult};

pub(super) struct EncodeDecode;

impl Rules for EncodeDecode {
    fn result(&self) -> &'static str {
        "a message encoded and decoded takes"
    }

    fn table_kind(&self) -> TableKind {
        TableKind::Coding
    }

    fn layout(&self) -> Layout {
        Layout::OneThread
    }

    fn can_pause(&self) -> bool {
        false
    }

    fn own_result(&self, instances: &[OwnFigures], _: u64) -> OwnResult {
        OwnResult::of_codec(instances)
    }

    fn bound(&self, costs: &Costs) -> Option<Bound> {
        Bound::of([costs.reference(Cost::CopyAndRead)])
    }
}
