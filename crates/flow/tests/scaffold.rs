//! The example that `estafette flow new` writes is a valid pipeline.

use std::fs;
use std::path::Path;

use estafette_flow::config::{Checked, Language, Options, Topology, check, scaffold};

fn checked(folder: &Path) -> Checked {
    check(&folder.join("pipeline.yml"), &Options::default())
}

#[test]
fn the_example_is_a_valid_pipeline() {
    let folder = tempfile::tempdir().expect("a folder");
    // Also into a folder that does not exist yet.
    let folder = folder.path().join("new/example");
    let files = scaffold(&folder, Language::Wat).expect("it is empty");
    assert!(files.iter().all(|file| file.is_file()));
    let Checked { pipeline, diagnostics } = checked(&folder);
    assert_eq!(diagnostics, []);
    let pipeline = pipeline.expect("it is good");
    wat::parse_file(&pipeline.functions[0].module).expect("it is WAT");
    assert_eq!(Topology::of(&pipeline).rings.len(), 2);
}

#[test]
fn the_example_of_a_language_is_valid_once_it_is_built() {
    for language in [Language::Rust, Language::Go, Language::C] {
        let folder = tempfile::tempdir().expect("a folder");
        scaffold(folder.path(), language).expect("it is empty");
        let messages: Vec<_> = checked(folder.path()).diagnostics.into_iter().map(|found| found.message).collect();
        let [message] = messages.as_slice() else { panic!("{language}: {messages:?}") };
        assert!(message.contains("there is no file at") && message.contains("greet.wasm"), "{message}");
        fs::write(folder.path().join("functions/greet.wasm"), "").expect("it can be written");
        assert_eq!(checked(folder.path()).diagnostics, []);
        let readme = fs::read_to_string(folder.path().join("README.md")).expect("it is there");
        assert!(readme.contains(language.build_command().expect("it is built")), "{readme}");
    }
}

#[test]
fn no_placeholder_is_left() {
    for language in Language::ALL {
        let folder = tempfile::tempdir().expect("a folder");
        for file in scaffold(folder.path(), language).expect("it is empty") {
            let text = fs::read_to_string(&file).expect("it is text");
            for placeholder in ["{module}", "{source}", "{language}", "{build}"] {
                assert!(!text.contains(placeholder), "{placeholder} in {}", file.display());
            }
        }
        assert_eq!(language.to_string().parse(), Ok(language));
    }
    assert!("cobol".parse::<Language>().is_err_and(|error| error.contains("wat, rust, go or c")));
}

#[test]
fn existing_files_are_not_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pipeline.yml");
    fs::write(&file, "mine").expect("it can be written");
    let error = scaffold(folder.path(), Language::Wat).unwrap_err();
    assert!(error.contains("is not empty; name an empty folder"), "{error}");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "mine");
    let error = scaffold(&file, Language::Wat).unwrap_err();
    assert!(error.contains("as a folder"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
}
