//! What the descriptions of all codecs have in common.

use estafette_contest_common::typed::Shape;
use estafette_measure::Spec;
use estafette_measure::case::{Pattern, PayloadKind};
use estafette_measure::spec::{Ownership, Tier};

/// Returns a codec's description. By default a decoded message is an owned value.
pub(super) fn spec(name: &str, version: &str, implementation: &str) -> Spec {
    Spec::new(&format!("thread/{name}"))
        .version(version)
        .implementation(implementation)
        .patterns(&[Pattern::Codec])
        .payloads(&[PayloadKind::Message])
        .ownership(Ownership::Owned)
        .tier(Tier::Suite)
}

/// Returns the name of a row: `library.serde-bytes`, or for the plain type `library` with the
/// suffix `plain`.
pub(super) fn variant<M: Shape>(library: &str, plain: &str) -> String {
    match M::NAME {
        "plain" => format!("{library}{plain}"),
        name => format!("{library}.{name}"),
    }
}
