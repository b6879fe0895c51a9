//! Runs the conformance suite on every transport of this crate.

mod common;

use common::{address, options};
use estafette_net::conformance::Subject;

fn conforms(scheme: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (listener, client) = options();
    Subject::new(scheme, move |scheme| address(scheme, &folder)).options(listener, client).conforms();
}

#[test]
fn tcp() {
    conforms("tcp");
}

#[test]
fn unix() {
    conforms("unix");
}

#[test]
fn inproc() {
    conforms("inproc");
}

#[test]
fn websocket() {
    conforms("ws");
}

#[test]
#[cfg(feature = "tls")]
fn tls() {
    conforms("tls");
}

#[test]
#[cfg(feature = "tls")]
fn websocket_over_tls() {
    conforms("wss");
}
