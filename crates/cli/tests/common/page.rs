//! What the tests of report pages share: published and hostile records, and the checks of a page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;

use super::{Done, Ground};

/// The longest page in bytes.
pub(crate) const MAX_PAGE: usize = 2_000_000;
/// What a hostile record has as its names.
pub(crate) const HOSTILE: &str = "x\"'><script>alert(1)</script>]]>-->&lt;\u{1b}[2J\u{202e}|`*";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

pub(crate) fn published(name: &str) -> String {
    root().join("docs/results").join(name).display().to_string()
}

/// Parses a page. It is XML as well as HTML, so that a stray `<` of a record is an error.
#[track_caller]
pub(crate) fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("not well-formed: {error}"))
}

pub(crate) fn all<'a>(page: &'a Document<'_>, tag: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    page.descendants().filter(move |node| node.is_element() && node.tag_name().name() == tag)
}

/// Checks what every page must have, whatever its record is.
#[track_caller]
pub(crate) fn check(page: &str) {
    assert!(page.len() < MAX_PAGE, "{} bytes", page.len());
    let tree = parsed(page);
    assert_eq!(all(&tree, "script").count(), 1, "only the page's own script");
    assert_eq!(all(&tree, "h1").count(), 1);
    let elements = || tree.descendants().filter(Node::is_element);
    for node in elements() {
        for attribute in node.attributes() {
            let is_link = matches!(attribute.name(), "href" | "src" | "action" | "data");
            assert!(!is_link || attribute.value().starts_with('#'), "loads {}", attribute.value());
            assert!(!attribute.name().starts_with("on"), "a handler: {}", attribute.name());
        }
    }
    let mut ids: Vec<&str> = elements().filter_map(|node| node.attribute("id")).collect();
    let links = all(&tree, "a").filter_map(|link| link.attribute("href"));
    for link in links {
        assert!(ids.contains(&&link[1..]), "a link to nowhere: {link}");
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an identifier twice");
    for svg in all(&tree, "svg") {
        assert_eq!(svg.attribute("role"), Some("img"));
        let has = |tag: &str| svg.children().any(|child| child.tag_name().name() == tag && child.text().is_some());
        assert!(has("title") && has("desc"), "a chart says what it is");
    }
    for table in all(&tree, "table") {
        assert!(table.children().any(|child| child.tag_name().name() == "caption"), "a table has a caption");
    }
}

/// A record with these names and figures in place of those of the overview.
pub(crate) fn hostile(ground: &Ground, edit: impl Fn(&mut Value)) -> String {
    let done = ground.run(["report", &published("overview-quick.json.gz"), "--json"]).exits(0);
    let mut record = done.json();
    edit(&mut record);
    fs::write(ground.path("hostile.json"), record.to_string()).expect("the record");
    String::from("hostile.json")
}

/// Replaces all mechanisms' names.
pub(crate) fn rename(record: &mut Value) {
    let rename = |value: &mut Value| {
        let name = value.as_str().expect("a name");
        *value = format!("{name}{HOSTILE}").into();
    };
    for spec in record["mechanisms"].as_array_mut().expect("mechanisms") {
        rename(&mut spec["name"]);
        spec["implementation"] = HOSTILE.into();
    }
    for list in ["entrants", "refusals"] {
        for entrant in record[list].as_array_mut().expect("a list") {
            rename(&mut entrant["case"]["mechanism"]);
        }
    }
    for key in ["cpu", "architecture", "kernel", "clock_source"] {
        record["fingerprint"][key] = HOSTILE.into();
    }
    for key in ["started", "tool"] {
        record[key] = HOSTILE.into();
    }
    record["provenance"]["arguments"] = serde_json::json!(["bench", HOSTILE, "a b", "it's"]);
    for instance in record["instances"].as_array_mut().expect("instances").iter_mut().step_by(7) {
        instance["outcome"] = serde_json::json!({ "failed": { "why": HOSTILE } });
    }
}

/// Sets figures of all instances, and of the machine, to a value.
pub(crate) fn set_figures(record: &mut Value, figure: f64) {
    for instance in record["instances"].as_array_mut().expect("instances") {
        let figures = &mut instance["outcome"]["measured"];
        let slices = figures.get_mut("slices").and_then(|slices| slices.as_array_mut());
        for slice in slices.into_iter().flatten() {
            slice["ns"] = figure.into();
        }
        figures["cpu_ns_per_message"] = figure.into();
        instance["line_ns"] = figure.into();
    }
    for handling in record["handling"].as_array_mut().expect("handling") {
        handling["ns"] = figure.into();
    }
    record["seed"] = u64::MAX.into();
    record["fingerprint"]["memory_mib"] = u64::MAX.into();
}

/// Checks that the shapes of all charts have numbers.
#[track_caller]
pub(crate) fn check_shapes(page: &str) {
    let tree = parsed(page);
    for shape in all(&tree, "svg").flat_map(|svg| svg.descendants()) {
        for name in ["d", "x", "y", "width"] {
            let value = shape.attribute(name).unwrap_or_default();
            assert!(!value.contains("NaN") && !value.contains("inf"), "{value}");
        }
    }
}

/// A browser that loads pages, and the rules of accessibility that it checks them with.
pub(crate) struct Browser {
    axe: PathBuf,
}

impl Browser {
    /// `None`, with a note, if there is no browser here and the tests need none.
    pub(crate) fn find(ground: &Ground) -> Option<Browser> {
        let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
        let axe = has("npm").then(|| axe(ground)).flatten();
        let browser = axe.filter(|_| has("chromium") && has("node")).map(|axe| Browser { axe });
        if browser.is_none() {
            let is_required = std::env::var_os("ESTAFETTE_PAGES").is_some_and(|value| value == "required");
            assert!(!is_required, "this needs chromium, node, and npm with a registry");
            eprintln!("SKIPPED: the page in a browser, which needs chromium, node, and npm with a registry");
        }
        browser
    }

    /// Loads a page at several widths, sorts and filters its tables, and applies the rules.
    #[track_caller]
    pub(crate) fn check(&self, page: &Path) {
        let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/check.mjs");
        let output = Command::new("node").arg(check).arg(page).arg(&self.axe).output().expect("node starts");
        let done = Done::from(output);
        assert!(done.status.success(), "{}:\n{}{}", page.display(), done.stdout, done.stderr);
    }
}

/// The rules of accessibility, from npm. `None` if they cannot be installed.
fn axe(ground: &Ground) -> Option<PathBuf> {
    let folder = ground.path("npm");
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg("axe-core@4");
    let installed = npm.output().is_ok_and(|output| output.status.success());
    let script = folder.join("node_modules/axe-core/axe.min.js");
    (installed && script.exists()).then_some(script)
}
