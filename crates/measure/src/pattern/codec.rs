//! One thread serializes each message to bytes and deserializes it again; see [`crate::codec_driver`].

use super::rules::{Layout, Rules, TableKind};
use crate::bound::{Bound, Cost, Costs};
use crate::pattern_figures::{PatternFigures, PatternResult};

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

    fn pattern_result(&self, instances: &[PatternFigures], _: u64) -> PatternResult {
        PatternResult::of_codec(instances)
    }

    fn bound(&self, costs: &Costs) -> Option<Bound> {
        Bound::of([costs.reference(Cost::CopyAndRead)])
    }
}
