//! Metrics and health of a running pipeline.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use estafette_flow::MetricsServer;
use estafette_flow::status::Status;

use crate::pipeline::{PATIENCE, Running};

fn get(address: SocketAddr, path: &str) -> String {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

#[test]
fn a_running_pipeline_has_metrics_and_health() {
    let pipeline = Running::start(
        "
sources:
  - { name: clock, timer: { every: 1us, count: 5 }, output: { topics: [t] } }
  - { name: posts, http: { listen: '127.0.0.1:0', path: /in }, output: { topics: [t] } }
sinks:
  - { name: keep, input: { topic: t }, file: { path: out.txt } }
",
    );
    pipeline.until_lines("out.txt", 5);
    let remote = pipeline.remote.clone();
    let server = MetricsServer::start(loopback(), move || remote.status()).unwrap();
    // A source counts a message after it has passed it on.
    let sent = "estafette_connector_sent_messages_total{connector=\"clock\"} 5";
    let metrics = crate::pipeline::until(|| Some(get(server.address(), "/metrics")).filter(|it| it.contains(sent)));
    assert!(metrics.starts_with("HTTP/1.1 200 OK"), "{metrics}");
    assert!(metrics.contains("text/plain; version=0.0.4"), "{metrics}");
    for line in [
        "# TYPE estafette_connector_sent_messages_total counter",
        sent,
        "estafette_topic_published_messages_total{topic=\"t\",queue=\"\"} 5",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    let health = get(server.address(), "/health");
    assert!(health.starts_with("HTTP/1.1 200 OK") && health.ends_with("\r\n\r\nok\n"), "{health}");
    assert!(get(server.address(), "/other").starts_with("HTTP/1.1 404 "));
    pipeline.end();
    let health = crate::pipeline::until(|| Some(get(server.address(), "/health")).filter(|it| !it.contains(" 200 ")));
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
}

#[test]
fn permanent_failures_are_in_the_health() {
    let status = Status { failures: vec!["the function `a` failed".into()], ..Status::default() };
    let server = MetricsServer::start(loopback(), move || Some(status.clone())).unwrap();
    let health = get(server.address(), "/health");
    assert!(health.starts_with("HTTP/1.1 503 ") && health.ends_with("the function `a` failed\n"), "{health}");
}

#[test]
fn other_machines_cannot_read_the_metrics() {
    let error = MetricsServer::start(([0, 0, 0, 0], 0).into(), || None).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}
