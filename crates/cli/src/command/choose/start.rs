//! What to start with: the crate to add, or the calls to make.

use estafette_measure::spec::Spec;

/// Returns a line to start with: a command that adds the library, and what to call.
pub(super) fn start(spec: &Spec) -> String {
    let implementation = &spec.implementation;
    if spec.version == "kernel" || spec.version == "std" {
        return format!("no library: {implementation}");
    }
    // Our own crates are not in the registry yet.
    if implementation.starts_with("estafette-") {
        return format!("crate {implementation}");
    }
    match &*crates(spec) {
        [] => format!("by hand: {implementation}"),
        crates => format!("cargo add {}; then {implementation}", crates.join(" ")),
    }
}

/// The crates that a mechanism needs, as `name@version`. None if its description does not name one.
fn crates(spec: &Spec) -> Vec<String> {
    let is_version = |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.');
    // `tokio 1.54.1, tokio-util 0.7.20`
    let named = spec.version.split(", ").filter_map(|part| {
        let (name, version) = part.split_once(' ')?;
        (is_crate(name) && is_version(version)).then(|| format!("{name}@{version}"))
    });
    let mut crates: Vec<String> = named.collect();
    if crates.is_empty() && is_version(&spec.version) {
        // `crossbeam_channel::bounded, send and recv`
        let path = spec.implementation.split([' ', ',']).next().and_then(|word| word.split_once("::"));
        let name = path.map(|(name, _)| name.replace('_', "-")).filter(|name| is_crate(name));
        crates.extend(name.map(|name| format!("{name}@{}", spec.version)));
    }
    crates
}

fn is_crate(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_crate_or_the_calls() {
        let of = |version: &str, implementation: &str| {
            start(&Spec::new("process/x").version(version).implementation(implementation))
        };
        assert_eq!(of("kernel", "pipe(2), write and read"), "no library: pipe(2), write and read");
        assert_eq!(of("std", "std::sync::mpsc::sync_channel, send"), "no library: std::sync::mpsc::sync_channel, send");
        let channel = of("0.5.17", "crossbeam_channel::bounded, send and recv");
        assert_eq!(channel, "cargo add crossbeam-channel@0.5.17; then crossbeam_channel::bounded, send and recv");
        let tokio = of("tokio 1.54.1, tokio-util 0.7.20", "TCP, by tokio");
        assert!(tokio.starts_with("cargo add tokio@1.54.1 tokio-util@0.7.20; then TCP"), "{tokio}");
        assert_eq!(of("0.1.0", "estafette-ipc: a ring"), "crate estafette-ipc: a ring");
        assert_eq!(of("0.1.0", "a ring of slots in a memfd"), "by hand: a ring of slots in a memfd");
    }
}
