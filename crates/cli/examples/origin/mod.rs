//! Where the results of an example come from, in a line.

// Each example uses its part of this.
#![allow(dead_code)]

use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::record::Record;

/// This program and this machine.
pub(crate) fn this() -> String {
    line(option_env!("ESTAFETTE_COMMIT"), env!("ESTAFETTE_COMPILER"), &Fingerprint::take())
}

/// What measured a record, where and when.
pub(crate) fn of_record(record: &Record) -> String {
    let provenance = record.provenance.as_ref();
    let commit = provenance.and_then(|provenance| provenance.commit.as_deref());
    let compiler = provenance.map_or("unknown compiler", |provenance| &*provenance.compiler);
    let arguments = provenance.map_or(String::new(), |provenance| provenance.arguments.join(" "));
    format!("estafette {arguments}; {}; {}", line(commit, compiler, &record.fingerprint), record.started)
}

fn line(commit: Option<&str>, compiler: &str, machine: &Fingerprint) -> String {
    format!("{}, {compiler}; {machine}", commit.unwrap_or("unknown commit"))
}
