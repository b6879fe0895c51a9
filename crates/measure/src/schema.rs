//! The schema published in `docs/` matches the types, and it accepts a record.

use std::path::Path;
use std::{env, fs};

use serde_json::{Value, json};

use crate::Registry;
use crate::plan::{COUNT_TIMEOUT, Plan, TIMEOUT};
use crate::record::Record;
use crate::run;
use crate::window::Window;

/// The JSON Schema of records, as it is published.
fn schema() -> String {
    serde_json::to_string_pretty(&schemars::schema_for!(Record)).unwrap() + "\n"
}

#[test]
fn the_published_schema_matches_the_types() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    if !docs.exists() {
        eprintln!("skipped: the schema is in the repository, not in the published crate");
        return;
    }
    let path = docs.join("record.schema.json");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, schema()).expect("docs/ can be written");
    }
    let published = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == schema(),
        "docs/record.schema.json is out of date. If an older reader would misread the change, raise \
         `record::VERSION`. Then update the file:\n    UPDATE=1 cargo test -p estafette-measure schema"
    );
}

#[test]
fn the_schema_accepts_a_record_and_rejects_other_files() {
    let plan = Plan {
        window: Window::Time { warmup_ns: 1, measure_ns: 2 },
        rounds: 1,
        precision: None,
        seed: 3,
        entrants: Vec::new(),
        refusals: Vec::new(),
        cpus: vec![0],
        slice: None,
        timeout: TIMEOUT,
        count_timeout: COUNT_TIMEOUT,
        other_host: None,
    };
    let schema: Value = serde_json::from_str(&schema()).expect("the schema is JSON");
    let schema = jsonschema::validator_for(&schema).expect("the schema is valid");
    let record = serde_json::to_value(run::new_record(&Registry::new(), &plan, None)).expect("a record is JSON");
    assert!(schema.is_valid(&record), "{:?}", schema.iter_errors(&record).collect::<Vec<_>>());
    let parsed = Record::parse(&record.to_string()).expect("the record can be parsed");
    assert_eq!(serde_json::to_value(parsed).expect("a record is JSON"), record);

    for (name, value) in [("rounds", json!(-1)), ("seed", json!("x")), ("instances", json!({})), ("window", json!(1))] {
        let mut other = record.clone();
        other[name] = value;
        assert!(!schema.is_valid(&other), "{name}");
        other.as_object_mut().expect("an object").remove(name);
        assert!(!schema.is_valid(&other), "without {name}");
    }
}
