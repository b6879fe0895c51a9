//! `completions` and `man`: each is made from the description that the help is made from.

mod common;

use std::collections::BTreeSet;
use std::fs;

use common::Ground;

/// The commands that the help lists.
fn commands(ground: &Ground) -> Vec<String> {
    let help = ground.run(["--help"]).exits(0).stdout;
    let listed = help.split("Commands:").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list of commands");
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned));
    let names: Vec<String> = names.filter(|name| !name.is_empty() && name != "help").collect();
    assert!(names.len() >= 12 && names.iter().any(|name| name == "new-mechanism"), "{names:?}");
    names
}

#[test]
fn a_script_for_each_shell_names_every_command() {
    let ground = Ground::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let done = ground.run(["completions", shell]).exits(0);
        assert_eq!(done.stderr, "");
        for name in commands(&ground) {
            assert!(done.stdout.contains(&name), "`{name}` is not in the script for {shell}");
        }
    }
    let done = ground.run(["completions", "tcsh"]).exits(2);
    assert!(done.stderr.contains("zsh"), "{}", done.stderr);
    ground.assert_clean();
}

#[test]
fn the_script_for_bash_is_valid() {
    let ground = Ground::new();
    let script = ground.path("estafette.bash");
    fs::write(&script, ground.run(["completions", "bash"]).exits(0).stdout).unwrap();
    let complete = "source estafette.bash; COMP_WORDS=(estafette gat); COMP_CWORD=1; _estafette estafette gat estafette; \
                    echo \"${COMPREPLY[@]}\"";
    let done = ground.program("bash", ["-c", complete]).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "gate", "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn each_command_has_a_manual_page() {
    let ground = Ground::new();
    ground.run(["man", "--out", "pages/man1"]).exits(0);
    let written = common::names(ground.path("pages/man1"));
    let mut expected = BTreeSet::from([String::from("estafette.1")]);
    expected.extend(commands(&ground).iter().map(|name| format!("estafette-{name}.1")));
    assert!(written.is_superset(&expected), "{written:?} instead of {expected:?}");
    if expected.contains("estafette-flow.1") {
        assert!(written.contains("estafette-flow-run.1"), "{written:?}");
    }
    for name in &written {
        let page = fs::read_to_string(ground.path("pages/man1").join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{name}: {page}");
        assert!(!page.contains("EXTRA"), "{name}: {page}");
    }
    let main = ground.run(["man"]).exits(0).stdout;
    assert_eq!(main, fs::read_to_string(ground.path("pages/man1/estafette.1")).unwrap());
    for said in ["bench", "new\\-mechanism", "EXIT STATUS"] {
        assert!(main.contains(said), "`{said}` is not in {main}");
    }
    ground.assert_clean();
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_with_a_remedy() {
    let ground = Ground::new();
    fs::write(ground.path("file"), "").unwrap();
    let done = ground.run(["man", "--out", "file"]).exits(2);
    assert!(done.stderr.contains("--out"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(ground.path("file")).unwrap(), "");
}
