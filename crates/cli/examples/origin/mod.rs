//! Where the results of an example come from.

use estafette_measure::fingerprint::Fingerprint;

/// A line with the commit of the sources, the compiler and the machine.
pub(crate) fn line() -> String {
    let commit = option_env!("ESTAFETTE_COMMIT").unwrap_or("unknown commit");
    format!("{commit}, {}; {}", env!("ESTAFETTE_COMPILER"), Fingerprint::take())
}
