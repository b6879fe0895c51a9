//! Functions in several languages, built by `examples/functions/build.sh`, in the pipelines of
//! `examples/pipelines`.
//!
//! Where they are not built the tests say so and pass, unless `ESTAFETTE_FUNCTIONS=required`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Ground;
use common::pipeline::Flow;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Whether these functions are built.
fn are_built(functions: &[&str]) -> bool {
    let folder = root().join("target/functions");
    let missing = functions.iter().find(|function| !folder.join(function).with_extension("wasm").exists());
    if let Some(missing) = missing {
        let is_required = std::env::var_os("ESTAFETTE_FUNCTIONS").is_some_and(|value| value == "required");
        assert!(!is_required, "{missing} is not built: examples/functions/build.sh");
        eprintln!("skipped: {missing} is not built; examples/functions/build.sh builds it");
    }
    missing.is_none()
}

#[test]
fn a_line_passes_through_functions_in_four_languages() {
    if !are_built(&["c/transform", "go/transform", "rust/transform", "assemblyscript/transform"]) {
        return;
    }
    let ground = Ground::new();
    let yaml = fs::read_to_string(root().join("examples/pipelines/languages.yml")).unwrap();
    let target = root().join("target");
    ground.pipeline(&yaml.replace("../../target", target.to_str().unwrap()), &[]);
    let lines: String = (0..1000).map(|line| format!("line {line}\n")).collect();
    let done = Flow::run(&ground, &[], &lines).exits(0);
    assert_eq!(done.stdout, lines.to_uppercase());
    ground.assert_clean();
}

#[test]
fn a_component_that_python_tools_made_is_a_function() {
    if !are_built(&["python/transform"]) {
        return;
    }
    let ground = Ground::new();
    let module = root().join("target/functions/python/transform.wasm");
    let yaml = format!(
        "functions:
  - {{ name: shout, module: {{ path: '{}' }}, input: {{ topic: in }}, output: {{ topics: [out] }} }}
sources:
  - {{ name: lines, stdin: lines, output: {{ topics: [in] }} }}
sinks:
  - {{ name: print, input: {{ topic: out }}, stdout: lines }}
",
        module.display()
    );
    ground.pipeline(&yaml, &[]);
    let done = Flow::run(&ground, &[], "hello\nworld\n").exits(0);
    assert_eq!(done.stdout, "HELLO\nWORLD\n");
}
