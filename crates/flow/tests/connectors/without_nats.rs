//! A topic that crosses hosts, in a build that cannot let it cross.

use std::fs;
use std::time::Duration;

use estafette_flow::config::{CheckedHost, Options, check};
use estafette_flow::{Supervisor, missing_on_server};

const YAML: &str = "
hosts: [edge, center]
nats: { servers: ['nats://127.0.0.1:1'], prefix: t }
functions: []
sources:
  - { name: in, on: edge, timer: { every: 1s }, output: { topics: [raw] } }
sinks:
  - { name: out, on: center, input: { topic: raw }, stdout: lines }
topics:
  raw: { transport: nats }
";

#[test]
fn the_error_names_the_feature() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipeline.yml");
    fs::write(&path, YAML).unwrap();
    let options = Options { host: CheckedHost::Named("edge"), ..Options::default() };
    let pipeline = check(&path, &options).pipeline.unwrap();
    let error = format!("{:#}", missing_on_server(&pipeline).unwrap_err());
    assert!(error.contains("feature `nats`") && error.contains("`flow-nats`"), "{error}");
    for host in ["edge", "center"] {
        let options = estafette_flow::Options { host_program: "unused".into(), drain_timeout: Duration::from_secs(10) };
        let supervisor = Supervisor::new(pipeline.part(host).unwrap(), options).unwrap();
        let error = format!("{:#}", supervisor.run().unwrap_err());
        assert!(error.contains("`raw`") && error.contains("feature `nats`"), "{error}");
    }
}
