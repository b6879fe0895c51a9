//! Between async tasks of one process.

use estafette_measure::Registry;
use estafette_measure::entry::values;

mod flume;
mod tokio_mpsc;

pub use self::flume::Flume;
pub use self::tokio_mpsc::TokioMpsc;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    registry.enrol(values(tokio_mpsc::TokioMpsc)).enrol(values(flume::Flume))
}
