//! Checks the files of `tests/pipelines` through the public API. The expected findings of each file
//! in `bad/` lie next to it, as do the expected warnings of files in `good/`.

use std::fs;
use std::path::{Path, PathBuf};

use estafette_flow::config::{
    Checked, Diagnostic, Finding, Function, FunctionKind, ModuleInspector, Options, Queue, Severity, Stream, check,
};

const FOLDER: &str = "tests/pipelines";

/// The pipelines in a folder of `tests/pipelines`.
fn pipelines(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(FOLDER).join(folder)).expect("the folder is there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yml"));
    files.sort();
    files
}

/// Checks a file as if the command ran in its folder.
fn checked(path: &Path) -> Checked {
    let working_folder = path.parent().unwrap_or(Path::new("")).to_owned();
    check(path, &Options { working_folder, ..Options::default() })
}

/// Prints the findings, without the folder in paths.
fn shown(diagnostics: &[Diagnostic], folder: &str) -> String {
    let text: String = diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect();
    text.replace(&format!("{FOLDER}/{folder}/"), "")
}

/// Compares findings with the expected ones, or writes them if `UPDATE` is set.
#[track_caller]
fn expect(path: &Path, findings: &str) {
    let expected = path.with_extension("expected");
    if std::env::var_os("UPDATE").is_some() {
        match findings.is_empty() {
            true => drop(fs::remove_file(&expected)),
            false => fs::write(&expected, findings).expect("it can be written"),
        }
    }
    let expected = fs::read_to_string(expected).unwrap_or_default();
    assert!(
        findings == expected,
        "{} comes to\n{findings}\ninstead of\n{expected}\nIf that is right:\n    \
         UPDATE=1 cargo test -p estafette-flow --test check",
        path.display()
    );
}

#[test]
fn good_pipelines_have_no_errors() {
    for folder in ["good", "good/reference"] {
        for path in pipelines(folder) {
            let Checked { pipeline, diagnostics } = checked(&path);
            assert!(pipeline.is_some(), "{}", shown(&diagnostics, folder));
            assert!(diagnostics.iter().all(|diagnostic| diagnostic.severity == Severity::Warning));
            expect(&path, &shown(&diagnostics, folder));
        }
    }
}

#[test]
fn bad_pipelines_have_the_expected_findings() {
    for path in pipelines("bad") {
        let Checked { pipeline, diagnostics } = checked(&path);
        assert!(pipeline.is_none(), "{} is bad", path.display());
        assert!(diagnostics.iter().all(|diagnostic| !diagnostic.help.is_empty()), "each has a remedy");
        expect(&path, &shown(&diagnostics, "bad"));
    }
}

#[test]
fn a_missing_file_is_an_error() {
    let diagnostics = checked(Path::new("no-such.yml")).diagnostics;
    let shown = shown(&diagnostics, "");
    assert!(shown.starts_with("no-such.yml: error: cannot read the file: "), "{shown}");
    let diagnostics = checked(Path::new(FOLDER)).diagnostics;
    assert_eq!(diagnostics.len(), 1, "a folder is not a file");
}

#[test]
fn the_files_of_the_reference_have_the_same_meaning() {
    let folder = Path::new(FOLDER).join("good/reference");
    // As if the command ran in that folder.
    let options = Options { working_folder: folder.clone(), ..Options::default() };
    let pipeline = |name: &str| check(&folder.join(name), &options).pipeline.expect("it is good");

    let plain = pipeline("functions.yml");
    assert_eq!((plain.name.as_str(), plain.files.len()), ("functions", 3));
    let send = plain.function("send").expect("it is there");
    assert_eq!(send.args, ["1000000", "10000"]);
    assert_eq!(send.output, ["local.topic1"]);
    assert_eq!((send.kind, &send.input), (FunctionKind::Processor, &None));
    assert_eq!(send.module, folder.join("wasm/send.wasm"));
    let receive = plain.function("receive").and_then(|function| function.input.clone()).expect("it reads");
    assert_eq!((receive.topic.as_str(), receive.queue), ("local.topic1", Queue::Unnamed));
    assert_eq!(plain.topics.keys().collect::<Vec<_>>(), ["local.topic1"]);

    assert_eq!(pipeline("functions_concur.yml").functions.len(), 3);
    let websocket = pipeline("functions_websocket.yml");
    let input = &websocket.functions[0];
    let url = String::from("wss://api2.example.org/stream");
    assert_eq!((input.kind, &input.stream), (FunctionKind::Input, &Some(Stream::Websocket { url })));
    assert_eq!(websocket.functions[1].output, ["polo-processor:trades", "polo-processor:book"]);
}

#[test]
fn paths_of_the_reference_are_relative_to_the_working_folder_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for inner in ["work", "list"] {
        fs::create_dir_all(path(inner).join("functions")).expect("it can be made");
        fs::write(path(inner).join("guest.wasm"), "").expect("it can be written");
        let function = format!("{{name: a, module: {{path: guest.wasm}}, args: [{inner}]}}");
        fs::write(path(inner).join("functions/a.yml"), function).expect("it can be written");
    }
    fs::write(path("list/p.yml"), "functions: [{name: a, config: functions/a.yml}]").expect("it can be written");
    let options = Options { working_folder: path("work"), ..Options::default() };
    let pipeline = || check(&path("list/p.yml"), &options).pipeline.expect("it is good");
    assert_eq!(pipeline().functions[0].args, ["work"]);
    assert_eq!(pipeline().functions[0].module, path("work/guest.wasm"));
    fs::remove_file(path("work/functions/a.yml")).expect("it can be removed");
    assert_eq!(pipeline().functions[0].args, ["list"]);
    assert_eq!(pipeline().functions[0].module, path("work/guest.wasm"));
}

#[test]
fn one_large_file_is_not_read_a_thousand_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = "x, ".repeat(9_000);
    let large = format!("{{name: f, module: {{path: large.yml}}, args: [{args}]}}");
    fs::write(folder.path().join("large.yml"), large).expect("it can be written");
    let entries = "- {name: f, config: large.yml}\n".repeat(1_000);
    let list = folder.path().join("list.yml");
    fs::write(&list, format!("functions:\n{entries}")).expect("it can be written");
    let diagnostics = check(&list, &Options::default()).diagnostics;
    let too_large = |found: &&Diagnostic| found.message.ends_with("the files of the pipeline are too large in all");
    let first = diagnostics.iter().find(too_large).expect("it is reported");
    assert_eq!(first.line, 24, "it was read 22 times");
}

/// Reports findings for every module.
struct Picky;

impl ModuleInspector for Picky {
    fn inspect(&self, module: &Path, function: &Function) -> Vec<Finding> {
        assert!(module.is_file());
        vec![
            Finding::error(format!("it does not export {}", function.name), "export it"),
            Finding::warning("it is large", "strip it"),
        ]
    }
}

#[test]
fn an_inspector_inspects_existing_modules() {
    let options = Options { inspector: Some(&Picky), ..Options::default() };
    let Checked { pipeline, diagnostics } = check(&Path::new(FOLDER).join("good/smallest.yml"), &options);
    assert_eq!(pipeline, None);
    let module = "`tests/pipelines/good/../modules/guest.wat`";
    let expected = format!(
        "smallest.yml:3:21: error: {module}: it does not export alone\n  help: export it\n\
         smallest.yml:3:21: warning: {module}: it is large\n  help: strip it\n"
    );
    assert_eq!(shown(&diagnostics, "good"), expected.replace("tests/pipelines/good/", ""));
    let missing = check(&Path::new(FOLDER).join("bad/files.yml"), &options).diagnostics;
    assert!(missing.iter().all(|diagnostic| !diagnostic.message.contains("export")));
}

#[test]
fn findings_can_be_serialized() {
    let diagnostics = checked(&Path::new(FOLDER).join("bad/queues.yml")).diagnostics;
    let json = serde_json::to_value(&diagnostics[0]).expect("it is data");
    assert_eq!(json["severity"], "error");
    assert_eq!(json["line"], 4);
    assert_eq!(json["column"], 89);
    assert!(json["file"].as_str().is_some_and(|file| file.ends_with("queues.yml")));
    assert!(json["message"].is_string() && json["help"].is_string());
}
