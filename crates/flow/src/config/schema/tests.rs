use std::path::{Path, PathBuf};
use std::{env, fs};

use jsonschema::Validator;

use super::super::diagnostic::Problems;
use super::super::fuzzing::Text;
use super::super::validate::validate;
use super::super::yaml::{self, Node, Scalar, ScalarKind};
use super::super::{Language, Options, Pipeline, check_files, scaffold};
use super::*;

const PIPELINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pipelines");

#[test]
fn the_published_schemas_are_those_of_the_check() {
    for (name, schema) in [("pipeline", pipeline_schema()), ("function", function_schema())] {
        let path = format!("{}/../../docs/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
        if env::var_os("UPDATE").is_some() {
            fs::write(&path, &schema).expect("docs/ can be written");
        }
        let published = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            published == schema,
            "docs/{name}.schema.json is out of date. Write it anew:\n    UPDATE=1 cargo test -p estafette-flow --lib"
        );
    }
}

/// Converts a node to JSON, as an editor does.
fn json(node: &Node) -> Value {
    match &node.value {
        yaml::Value::Scalar(scalar) => scalar_json(scalar),
        yaml::Value::List(nodes) => nodes.iter().map(json).collect(),
        yaml::Value::Map(entries) => {
            entries.iter().map(|entry| (entry.key.to_string(), json(&entry.node))).collect::<Map<_, _>>().into()
        }
    }
}

fn scalar_json(scalar: &Scalar) -> Value {
    match scalar.kind() {
        ScalarKind::Null => Value::Null,
        ScalarKind::Flag(flag) => json!(flag),
        ScalarKind::Number => match scalar.text.parse::<i64>() {
            Ok(integer) => json!(integer),
            Err(_) => json!(scalar.text.parse::<f64>().unwrap_or(0.5)),
        },
        ScalarKind::Text => json!(&*scalar.text),
    }
}

/// The files in a folder that can be parsed, and their trees.
fn trees(folder: &str) -> Vec<(PathBuf, Node)> {
    let entries = fs::read_dir(Path::new(PIPELINES).join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let yml = paths.filter(|path| path.extension().is_some_and(|extension| extension == "yml"));
    yml.filter_map(|path| {
        let bytes = fs::read(&path).expect("it can be read");
        let document = yaml::parse(&bytes).ok().filter(|document| document.duplicates.is_empty())?;
        Some((path, document.root))
    })
    .collect()
}

fn validator(schema: &str) -> Validator {
    jsonschema::validator_for(&serde_json::from_str(schema).expect("it is JSON")).expect("it is a schema")
}

/// Whether the check finds no error in the file alone.
fn is_valid(root: &Node, object: &'static Object) -> bool {
    let mut problems = Problems::default();
    let file = problems.file(String::new());
    validate(file, root, object, &mut problems);
    !problems.has_errors()
}

/// The schema shows editors all errors in a single file, except values with a unit that are out of
/// range.
#[test]
fn editors_agree_with_the_check() {
    let mut refused = 0;
    let pipelines = [("good", &PIPELINE), ("good/reference", &PIPELINE), ("bad", &PIPELINE)];
    let functions = [("good/reference/functions", &FUNCTION), ("good/mixed", &FUNCTION), ("bad/own", &FUNCTION)];
    for (folder, object) in pipelines.into_iter().chain(functions) {
        let validator = validator(&schema(object));
        for (path, root) in trees(folder) {
            let errors: Vec<_> = validator.iter_errors(&json(&root)).map(|error| error.to_string()).collect();
            assert_eq!(errors.is_empty(), is_valid(&root, object), "{}: {errors:#?}", path.display());
            refused += usize::from(!errors.is_empty());
        }
    }
    assert!(refused >= 6, "some are bad");
}

/// Finds the YAML files below a folder.
fn yaml_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("it can be read").path()) {
        let is_yaml = path.extension().is_some_and(|extension| extension == "yml" || extension == "yaml");
        match path.is_dir() {
            true if path.ends_with("target") || path.ends_with("node_modules") => {}
            true => yaml_files(&path, found),
            false if is_yaml => found.push(path),
            false => {}
        }
    }
}

#[test]
fn editors_find_no_errors_in_the_examples() {
    let mut files = Vec::new();
    yaml_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"), &mut files);
    let mut texts: Vec<_> = files.iter().map(|path| (path.clone(), fs::read(path).expect("it can be read"))).collect();
    let new = scaffold::files(Language::Wat).into_iter().find(|(name, _)| name == "pipeline.yml");
    texts.extend(new.map(|(name, text)| (PathBuf::from(name), text.into_bytes())));
    for (path, text) in texts {
        let root = yaml::parse(&text).expect("it is YAML").root;
        let object = match (root.get("functions"), root.get("module")) {
            (Some(_), _) => &PIPELINE,
            (None, Some(_)) => &FUNCTION,
            (None, None) => continue,
        };
        let errors: Vec<_> =
            validator(&schema(object)).iter_errors(&json(&root)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
    }
}

/// Changes one value in a good file. Returns whether the schema refuses it, and whether the check
/// does.
fn refusals(path: &[&str], value: &str) -> (bool, bool) {
    let text = fs::read(Path::new(PIPELINES).join("good/everything.yml")).expect("it is there");
    let mut root = yaml::parse(&text).expect("it is good").root;
    let mut node = &mut root;
    for step in path {
        node = match &mut node.value {
            yaml::Value::List(nodes) => &mut nodes[step.parse::<usize>().expect("an index")],
            yaml::Value::Map(entries) => {
                &mut entries.iter_mut().find(|entry| &*entry.key == *step).expect("a key").node
            }
            yaml::Value::Scalar(_) => panic!("{step} in a scalar"),
        };
    }
    *node = yaml::parse(value.as_bytes()).expect("a value").root;
    (!validator(&pipeline_schema()).is_valid(&json(&root)), !is_valid(&root, &PIPELINE))
}

#[test]
fn editors_and_the_check_refuse_the_same_values() {
    let function = |key: &'static str| vec!["functions", "0", key];
    let cases: [(Vec<&str>, &[&str], &[&str]); _] = [
        (function("name"), &["a", "a:b.c", "'5'"], &["5", "true", "''", "[]", "null"]),
        (function("kind"), &["input"], &["inputs", "1", "{}"]),
        (function("args"), &["[]", "[1.5, x]"], &["x", "[[]]", "[null]", "{}"]),
        (function("replicas"), &["64"], &["65", "0", "-1", "1.5", "'1'", "many"]),
        (vec!["functions", "0", "limits", "memory"], &["1MiB", "65536", "'65536'"], &["1.5MiB", "1mb", "-1", "true"]),
        (vec!["functions", "0", "limits", "call"], &["1s", "10 min"], &["1", "1.5s", "1h", "s"]),
        (vec!["functions", "0", "allow", "clocks"], &["true"], &["yes", "1", "'true'"]),
        (vec!["functions", "0", "allow", "env"], &["{}", "{A: 1}"], &["[]", "{A: {}}", "{'': x}"]),
        (vec!["functions", "0", "allow", "network"], &["[]", "['a:1']"], &["['a']", "[1]", "a"]),
        (
            vec!["functions", "1", "stream"],
            &["{websocket: {url: 'ws://a'}}"],
            &["{}", "{websocket: {url: 'http://a'}}"],
        ),
        (vec!["sources", "2", "http", "path"], &["/", "/a/b"], &["a", "/a?b", "1"]),
        (vec!["sources", "3", "timer"], &["{every: 1ms}"], &["{count: 1}", "{every: 1}", "1s"]),
        (
            vec!["sources", "0"],
            &["{name: a, stdin: whole, output: {topics: []}}"],
            &["{name: a, output: {topics: []}}"],
        ),
        (vec!["topics"], &["{}", "{a: {}}"], &["[]", "{a: null}", "{a: {transport: tcp}}", "{'': {}}"]),
    ];
    for (path, good, bad) in cases {
        for value in good {
            assert_eq!(refusals(&path, value), (false, false), "{path:?}: {value}");
        }
        for value in bad {
            assert_eq!(refusals(&path, value), (true, true), "{path:?}: {value}");
        }
    }
}

/// Calls a function for each key of each object.
fn each_key(object: &'static Object, see: &mut impl FnMut(&'static Object, &'static Key)) {
    fn inside(shape: &Shape, see: &mut impl FnMut(&'static Object, &'static Key)) {
        match shape {
            Shape::List(of) | Shape::Map { value: of, .. } => inside(of, see),
            Shape::Object(object) => each_key(object, see),
            Shape::Either { then, otherwise, .. } => {
                each_key(then, see);
                each_key(otherwise, see);
            }
            _ => {}
        }
    }
    for key in object.keys {
        see(object, key);
        inside(&key.shape, see);
    }
}

#[test]
fn every_key_is_in_the_good_files() {
    let read = |name| fs::read_to_string(Path::new(PIPELINES).join(name)).expect("it is there");
    let text = read("good/everything.yml") + &read("good/hosts.yml");
    each_key(&PIPELINE, &mut |object, key| {
        let is_written = text.contains(&format!("{}:", key.name)) || object.definition == "FunctionReference";
        assert!(is_written, "{} of {} is missing in everything.yml and hosts.yml", key.name, object.what);
    });
}

/// Reads a function with one more key. The file is JSON, which YAML includes.
fn read_with(keys: &[&str], value: Option<Value>) -> Pipeline {
    let mut root = json!({
        "functions": [{ "name": "f", "module": { "path": "a" }, "limits": {}, "restart": {}, "allow": {
            "directories": [{ "host": "." }],
        } }],
        "sources": [
            { "name": "file", "file": { "path": "a" }, "output": { "topics": ["t"] } },
            { "name": "http", "http": { "listen": "127.0.0.1:80" }, "output": { "topics": ["t"] } },
        ],
        "sinks": [{ "name": "sink", "file": { "path": "b" }, "input": { "topic": "t" } }],
        "topics": { "t": {} },
        "nats": { "servers": ["nats://a"], "prefix": "p", "stream": {} },
    });
    if let (Some(value), Some(place)) = (value, root.pointer_mut(keys[0])) {
        place[keys[1]] = value;
    }
    let text = root.to_string();
    let checked = check_files(Path::new("p.yml"), &Options::default(), &Text(text.as_bytes()));
    checked.pipeline.unwrap_or_else(|| panic!("{keys:?}: {:?}", checked.diagnostics))
}

#[test]
fn the_documented_defaults_are_the_real_ones() {
    let places = BTreeMap::from([
        ("Function", "/functions/0"),
        ("Limits", "/functions/0/limits"),
        ("Restart", "/functions/0/restart"),
        ("Grants", "/functions/0/allow"),
        ("Directory", "/functions/0/allow/directories/0"),
        ("FileSource", "/sources/0/file"),
        ("Http", "/sources/1/http"),
        ("FileSink", "/sinks/0/file"),
        ("Topic", "/topics/t"),
        ("Nats", "/nats"),
        ("NatsStream", "/nats/stream"),
    ]);
    let absent = read_with(&["", ""], None);
    let mut seen = 0;
    each_key(&PIPELINE, &mut |object, key| {
        if key.default.is_some() {
            let value = property(key, &mut BTreeMap::new())["default"].clone();
            assert_eq!(read_with(&[places[object.definition], key.name], Some(value)), absent, "{}", key.name);
            seen += 1;
        }
    });
    assert!(seen >= 20, "{seen}");
}
