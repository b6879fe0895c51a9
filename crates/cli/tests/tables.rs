//! The tables of `report`: the sentences below them, and their width in terminals.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Ground;

/// A committed record.
fn published(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results").join(name);
    path.canonicalize().expect("the record").display().to_string()
}

#[test]
fn what_wins_where_covers_each_size() {
    let ground = Ground::new();
    let what = ["process/pipe", "process/fifo", "--pattern=ping-pong", "--wait=block", "--size=64,4KiB"];
    let round = ground.one_round(20, &what);
    fs::write(ground.path("record.json"), common::repeated(&round, "process/fifo", 1.3).to_string()).unwrap();
    let text = ground.run(["report", "record.json"]).exits(0).stdout.replace('\n', " ");
    let (_, sentence) = text.split_once("Fastest by scope: ").expect("a sentence about the winners");
    let (winners, _) = sentence.split_once(". ").expect("its end");
    for size in ["64B", "4KiB"] {
        let place = format!("pipe (ping-pong · {size} · ");
        assert!(winners.contains(&place), "`{place}` is not in {winners}");
    }
    ground.assert_clean();
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let ground = Ground::new();
    // The quick records have every kind of table. Those of channels have lines in a format of the reference, which are not wrapped.
    for record in ["overview-quick.json.gz", "ipc-quick.json.gz", "net-quick.json.gz", "flow-quick.json.gz"] {
        let widths = [60, 80, 100].map(|columns| {
            let text = ground.terminal(columns, &["report", "--details", &published(record)]).exits(0).stdout;
            let longest = text.lines().max_by_key(|line| line.chars().count()).expect("a table");
            assert!(longest.chars().count() <= usize::from(columns), "{record}: {columns} columns: {longest}");
            longest.chars().count()
        });
        assert!(widths.is_sorted() && widths[0] < widths[2], "{record} uses the width that there is: {widths:?}");
    }
}
