//! What a chart shows of a cell, and in which unit.

use estafette_measure::case::{Cell, Load};
use estafette_measure::pattern::TableKind;

use super::super::plot::{Unit, YAxis};

/// The figure by which a cell's mechanisms are compared, as a chart shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Messages or bytes per second.
    Throughput(Unit),
    /// The median round trip.
    RoundTrip,
    /// The time to encode and decode.
    Coding,
    /// The 99th percentile of an open loop.
    Latency,
}

impl Quantity {
    pub(super) fn of(cell: &Cell) -> Quantity {
        match cell.load {
            Load::Saturated if cell.pattern.is_round_trip() => Quantity::RoundTrip,
            Load::Saturated if cell.pattern.table_kind() == TableKind::Coding => Quantity::Coding,
            Load::Saturated if cell.payload.len() > 8 && !cell.scope.in_process() => {
                Quantity::Throughput(Unit::Bandwidth)
            }
            Load::Saturated => Quantity::Throughput(Unit::Rate),
            Load::Rate(_) | Load::Poisson(_) => Quantity::Latency,
        }
    }

    /// The figure of a time per message or round trip, in the unit of [`Quantity::axis`].
    pub(super) fn value(self, cell: &Cell, ns: f64) -> f64 {
        match self {
            Quantity::Throughput(Unit::Bandwidth) => cell.payload.len() as f64 * 1e9 / ns,
            Quantity::Throughput(_) => 1e9 / ns,
            Quantity::RoundTrip | Quantity::Coding | Quantity::Latency => ns,
        }
    }

    pub(super) fn axis(self) -> YAxis {
        let (label, unit) = match self {
            Quantity::Throughput(Unit::Bandwidth) => ("bytes per second", Unit::Bandwidth),
            Quantity::Throughput(_) => ("messages per second", Unit::Rate),
            Quantity::RoundTrip => ("median round trip", Unit::Time),
            Quantity::Coding => ("time to encode and decode", Unit::Time),
            Quantity::Latency => ("time within which 99 % arrive", Unit::Time),
        };
        YAxis { label, unit }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Quantity::Throughput(_) => "Throughput",
            Quantity::RoundTrip => "Round trips",
            Quantity::Coding => "Encoding",
            Quantity::Latency => "Latency",
        }
    }
}
