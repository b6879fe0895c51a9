//! The metrics of a pipeline: their names, types and values.

use std::collections::HashMap;

use super::text::{Kind, Text};
use crate::status::{ConnectorStatus, EdgeStatus, FunctionStatus, ModeStatus, PhaseStatus, Status};

/// A metric of a `T`: name, type, description, and a function that returns its value, if there is
/// one.
type Family<T> = (&'static str, Kind, &'static str, fn(&T) -> Option<f64>);

use Kind::{Counter, Gauge};

const PIPELINE: &[Family<Status>] = &[
    ("estafette_uptime_seconds", Gauge, "How long the pipeline has run.", |it| Some(it.uptime_seconds)),
    ("estafette_failures", Gauge, "The number of permanent failures.", |it| Some(it.failures.len() as f64)),
];

const FUNCTIONS: &[Family<FunctionStatus>] = &[
    ("estafette_function_calls_total", Counter, "Calls into the function.", |it| count(it.calls)),
    ("estafette_function_received_messages_total", Counter, "Messages that it has processed.", |it| {
        count(it.received_messages)
    }),
    ("estafette_function_received_bytes_total", Counter, "Bytes of messages that it has processed.", |it| {
        count(it.received_bytes)
    }),
    ("estafette_function_sent_messages_total", Counter, "Messages that it has sent.", |it| count(it.sent_messages)),
    ("estafette_function_sent_bytes_total", Counter, "Bytes of messages that it has sent.", |it| count(it.sent_bytes)),
    (
        "estafette_function_dropped_messages_total",
        Counter,
        "Messages that were dropped by a topic's overflow policy when the function sent them.",
        |it| count(it.dropped),
    ),
    (
        "estafette_function_unread_messages_total",
        Counter,
        "Messages that it sent to a queue whose readers had all ended.",
        |it| count(it.unread),
    ),
    (
        "estafette_function_dead_letters_total",
        Counter,
        "Messages that reached the maximum number of deliveries.",
        |it| count(it.dead_letters),
    ),
    ("estafette_function_traps_total", Counter, "Calls that failed.", |it| count(it.traps)),
    ("estafette_function_restarts_total", Counter, "How often it was restarted.", |it| count(it.restarts)),
    ("estafette_function_memory_bytes", Gauge, "Its linear memory.", |it| count(it.memory_bytes)),
    (
        "estafette_function_resident_bytes",
        Gauge,
        "The memory of its host process, unless it shares the process.",
        |it| it.resident_bytes.and_then(count),
    ),
    (
        "estafette_function_cpu_seconds_total",
        Counter,
        "The CPU time of its host process, unless it shares the process.",
        |it| it.cpu_seconds,
    ),
    (
        "estafette_function_start_seconds",
        Gauge,
        "How long its last start took, from the request to its first instruction.",
        |it| Some(it.start_seconds),
    ),
];

const EDGES: &[Family<EdgeStatus>] = &[
    ("estafette_topic_published_messages_total", Counter, "Messages that were published to the queue.", |it| {
        count(it.published_messages)
    }),
    ("estafette_topic_published_bytes_total", Counter, "Bytes of messages that were published to the queue.", |it| {
        count(it.published_bytes)
    }),
    ("estafette_topic_depth_messages", Gauge, "Messages that wait or are being processed.", |it| {
        count(it.depth_messages)
    }),
    ("estafette_topic_depth_bytes", Gauge, "Bytes that wait or are being processed.", |it| count(it.depth_bytes)),
    ("estafette_topic_capacity_bytes", Gauge, "The capacity in bytes.", |it| count(it.capacity_bytes)),
    ("estafette_topic_oldest_seconds", Gauge, "How long the oldest message has waited.", |it| Some(it.oldest_seconds)),
    (
        "estafette_topic_dropped_messages_total",
        Counter,
        "Old messages that were dropped to make space for new ones.",
        |it| count(it.dropped),
    ),
    (
        "estafette_topic_dropped_new_messages_total",
        Counter,
        "New messages that were dropped because there was no space.",
        |it| count(it.dropped_new),
    ),
    ("estafette_topic_discarded_messages_total", Counter, "Messages that were lost because a reader failed.", |it| {
        count(it.discarded)
    }),
];

const CONNECTORS: &[Family<ConnectorStatus>] = &[
    ("estafette_connector_sent_messages_total", Counter, "Messages that it has sent into the pipeline.", |it| {
        count(it.sent_messages)
    }),
    (
        "estafette_connector_received_messages_total",
        Counter,
        "Messages that it has received from the pipeline.",
        |it| count(it.received_messages),
    ),
    ("estafette_connector_dropped_messages_total", Counter, "Messages that it dropped.", |it| count(it.dropped)),
    (
        "estafette_connector_unread_messages_total",
        Counter,
        "Messages that it sent to a queue whose readers had all ended.",
        |it| count(it.unread),
    ),
    ("estafette_connector_ended", Gauge, "1 once it has ended.", |it| Some(f64::from(u8::from(it.is_ended)))),
    ("estafette_connector_problem", Gauge, "1 while something keeps it from its work, such as a lost server.", |it| {
        Some(f64::from(u8::from(it.problem.is_some())))
    }),
];

fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

/// Renders all metrics as text.
pub(super) fn render(status: &Status) -> String {
    let mut text = Text::default();
    let pipeline = [("pipeline", status.pipeline.as_str())];
    families(&mut text, PIPELINE, &[(pipeline.to_vec(), status)]);
    modes(&mut text, status);
    let replicas: Vec<_> = status.functions.iter().map(|function| function.replica.to_string()).collect();
    let functions = status.functions.iter().zip(&replicas).map(|(function, replica)| {
        (vec![("function", function.function.as_str()), ("replica", replica.as_str())], function)
    });
    let functions: Vec<_> = functions.collect();
    families(&mut text, FUNCTIONS, &functions);
    phases(&mut text, &functions);
    let queues = queues(&status.edges);
    let edges = status.edges.iter().zip(&queues);
    let edges = edges.map(|(edge, queue)| (vec![("topic", edge.topic.as_str()), ("queue", queue.as_str())], edge));
    families(&mut text, EDGES, &edges.collect::<Vec<_>>());
    let connectors = status.connectors.iter().map(|it| (vec![("connector", it.name.as_str())], it));
    families(&mut text, CONNECTORS, &connectors.collect::<Vec<_>>());
    text.finish()
}

/// An item with its labels.
type Labelled<'a, T> = (Vec<(&'a str, &'a str)>, &'a T);

fn families<T>(text: &mut Text, families: &[Family<T>], all: &[Labelled<'_, T>]) {
    for (name, kind, help, value) in families {
        let mut samples = all.iter().filter_map(|(labels, it)| Some((labels, value(it)?))).peekable();
        if samples.peek().is_some() {
            text.begin(name, *kind, help);
        }
        samples.for_each(|(labels, value)| text.sample(name, labels, value));
    }
}

fn modes(text: &mut Text, status: &Status) {
    const NAME: &str = "estafette_mode";
    text.begin(NAME, Gauge, "1 for the current mode of the pipeline, 0 for the others.");
    let all =
        [("running", ModeStatus::Running), ("draining", ModeStatus::Draining), ("stopping", ModeStatus::Stopping)];
    for (name, mode) in all {
        let labels = [("pipeline", status.pipeline.as_str()), ("mode", name)];
        text.sample(NAME, &labels, f64::from(u8::from(status.mode == mode)));
    }
}

fn phases(text: &mut Text, functions: &[Labelled<'_, FunctionStatus>]) {
    const NAME: &str = "estafette_function_phase";
    let all = [
        ("waiting", PhaseStatus::Waiting),
        ("starting", PhaseStatus::Starting),
        ("running", PhaseStatus::Running),
        ("finished", PhaseStatus::Finished),
        ("stopped", PhaseStatus::Stopped),
        ("failed", PhaseStatus::Failed),
    ];
    if !functions.is_empty() {
        text.begin(NAME, Gauge, "1 for the current phase of the instance, 0 for the others.");
    }
    for (labels, function) in functions {
        for (name, phase) in all {
            let labels: Vec<_> = labels.iter().copied().chain([("phase", name)]).collect();
            text.sample(NAME, &labels, f64::from(u8::from(function.phase == phase)));
        }
    }
}

/// The names of queues. A reader with `queue: each` may have the same name as a queue. A number is
/// added then, as no two samples may have the same labels.
fn queues(edges: &[EdgeStatus]) -> Vec<String> {
    let mut seen: HashMap<(&str, &str), u32> = HashMap::new();
    let name = |edge| {
        let EdgeStatus { topic, queue, .. }: &EdgeStatus = edge;
        let number = seen.entry((topic, queue)).and_modify(|number| *number += 1).or_insert(1);
        if *number == 1 { queue.clone() } else { format!("{queue} ({number})") }
    };
    edges.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn edge(queue: &str) -> EdgeStatus {
        EdgeStatus {
            topic: "a".into(),
            queue: queue.into(),
            published_messages: 7,
            published_bytes: 70,
            depth_messages: 1,
            depth_bytes: 16,
            capacity_bytes: 4096,
            oldest_seconds: 0.5,
            dropped: 0,
            dropped_new: 0,
            discarded: 0,
        }
    }

    fn function(replica: u32) -> FunctionStatus {
        FunctionStatus {
            function: "f \"g\"".into(),
            replica,
            phase: PhaseStatus::Running,
            pid: Some(1),
            calls: 3,
            received_messages: 2,
            received_bytes: 1,
            sent_messages: 0,
            sent_bytes: 0,
            dropped: 0,
            unread: 0,
            dead_letters: 0,
            traps: 0,
            restarts: 0,
            memory_bytes: 65536,
            resident_bytes: None,
            cpu_seconds: Some(0.25),
            start_seconds: 0.001,
        }
    }

    fn status() -> Status {
        let connector = ConnectorStatus {
            name: "c".into(),
            sent_messages: 1,
            received_messages: 0,
            dropped: 0,
            unread: 0,
            is_ended: true,
            problem: None,
        };
        Status {
            pipeline: "p".into(),
            functions: vec![function(0), function(1)],
            edges: vec![edge(""), edge("q"), edge("q")],
            connectors: vec![connector],
            ..Status::default()
        }
    }

    #[test]
    fn every_sample_has_a_type_and_labels_of_its_own() {
        let text = render(&status());
        let mut current = String::new();
        let (mut names, mut samples) = (HashSet::new(), HashSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(names.insert(name.to_owned()), "{name} comes twice");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                current = name.to_owned();
            } else if !line.starts_with('#') {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                assert!(samples.insert(sample.to_owned()), "{sample} comes twice");
                assert_eq!(sample.split('{').next().unwrap(), current);
                value.parse::<f64>().unwrap();
            }
        }
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn values_are_those_of_the_status() {
        let text = render(&status());
        for line in [
            "estafette_mode{pipeline=\"p\",mode=\"running\"} 1",
            "estafette_function_calls_total{function=\"f \\\"g\\\"\",replica=\"1\"} 3",
            "estafette_function_phase{function=\"f \\\"g\\\"\",replica=\"0\",phase=\"failed\"} 0",
            "estafette_function_cpu_seconds_total{function=\"f \\\"g\\\"\",replica=\"0\"} 0.25",
            "estafette_topic_oldest_seconds{topic=\"a\",queue=\"q (2)\"} 0.5",
            "estafette_connector_ended{connector=\"c\"} 1",
            "estafette_connector_problem{connector=\"c\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        // The value is unknown, so the metric is absent.
        assert!(!text.contains("resident_bytes"));
    }

    #[test]
    fn an_empty_pipeline_has_metrics() {
        let text = render(&Status::default());
        assert!(text.contains("estafette_uptime_seconds{pipeline=\"\"} 0\n"));
        assert!(!text.contains("estafette_function"));
    }
}
