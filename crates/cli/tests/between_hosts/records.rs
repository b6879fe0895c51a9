//! The records of docs/results that are measured between two network namespaces.

use std::fs;
use std::path::Path;
use std::process::Command;

use estafette_measure::case::{Cell, Place};
use estafette_measure::ranking::{Ranking, rank};
use estafette_measure::record::Record;
use estafette_measure::stats::Verdict;

use crate::namespaces::{Cable, Hosts};
use crate::{Peer, TOKEN};

/// Makes the record of docs/results: the suite `net` over 40 ms, where one packet in a thousand is
/// lost.
///
/// `ESTAFETTE` names the program, from a release build, and `OUT` the folder of the record. `BENCH`
/// replaces the argument `net`.
#[test]
#[ignore = "makes a record, in ten minutes"]
fn record_of_a_long_and_lossy_way() {
    let [program, out] = ["ESTAFETTE", "OUT"].map(|name| std::env::var(name).expect(name));
    let hosts = Hosts::new(Cable { delay_ms: 20, loss_percent: 0.1, rate_mbit: 100 }).unwrap();
    let peer = Peer::start_program_on(&hosts, &program, &["--once"]);
    let status = Command::new(hosts.words(0)[0])
        .args(&hosts.words(0)[1..])
        .args([&program, "bench", "--to", &peer.url, "--out", &out])
        .args(std::env::var("BENCH").unwrap_or("net".into()).split_whitespace())
        .env("ESTAFETTE_TOKEN", TOKEN)
        .status();
    assert!(status.unwrap().success());
    peer.end().exits(0);
}

/// Runs `bench` on loopback and between two namespaces that the kernel joins, and prints how well
/// the two agree.
///
/// `ESTAFETTE` names the program, from a release build, and `OUT` the folder of the records.
/// `BENCH` replaces the arguments.
#[test]
#[ignore = "makes two records, in some ten minutes"]
fn record_over_a_clean_way() {
    let [program, out] = ["ESTAFETTE", "OUT"].map(|name| std::env::var(name).expect(name));
    let default = "network/* --pattern ping-pong,stream --size 1KiB,32KiB --window 100ms --rounds 12 --slice off";
    let arguments = std::env::var("BENCH").unwrap_or(default.into());
    let hosts = Hosts::joined_by_veth().unwrap();
    let peer = Peer::start_program_on(&hosts, &program, &["--once"]);
    let records = [("loopback", &[][..]), ("between", &["--to", &peer.url])].map(|(name, to)| {
        let folder = format!("{out}/{name}");
        let status = Command::new(hosts.words(0)[0])
            .args(&hosts.words(0)[1..])
            .args([&program, "bench", "--out", &folder])
            .args(to)
            .args(arguments.split_whitespace())
            .env("ESTAFETTE_TOKEN", TOKEN)
            .status();
        // 2: an instance failed, which the record shows.
        assert!(matches!(status.unwrap().code(), Some(0 | 2)), "{name}");
        let record = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
        let record = record.filter(|path| path.extension().is_some_and(|extension| extension == "json")).max().unwrap();
        Record::load(&record).unwrap()
    });
    peer.end().exits(0);
    let (alike, reversed) = agreement(&records);
    println!("{alike} decided alike, {} reversed: {}", reversed.len(), reversed.join("; "));
}

#[test]
fn mechanisms_have_the_order_of_loopback_over_a_clean_way() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let records = ["net-clean-loopback", "net-clean"].map(|name| results.join(name).with_extension("json.gz"));
    let (alike, reversed) = agreement(&records.map(|path| Record::load(&path).unwrap()));
    assert_eq!((alike, reversed.len()), (219, 24), "docs/between-hosts.md has these numbers; reversed: {reversed:?}");
    // UDP packets of 32 KiB are whole on loopback and fragmented on the way to another host.
    let is_fragmented = |words: &String| words.contains("network/udp") && words.contains("32KiB");
    assert!(reversed.iter().all(is_fragmented), "{reversed:?}");
}

/// How many of the differences that both records decide they decide alike, and which they do not.
fn agreement(records: &[Record; 2]) -> (usize, Vec<String>) {
    let (mut alike, mut reversed) = (0, Vec::new());
    let [loopback, between] = records.each_ref().map(rank);
    let without_place = |cell: &Cell| Cell { place: Place::Free, ..cell.clone() };
    for one in &between {
        let Some(other) = loopback.iter().find(|other| without_place(&other.cell) == without_place(&one.cell)) else {
            continue;
        };
        let row = |ranking: &Ranking, name: &str| ranking.rows.iter().position(|row| row.spec.name == name);
        let names: Vec<&str> = one.rows.iter().map(|row| &*row.spec.name).collect();
        for (index, first) in names.iter().enumerate() {
            for second in &names[index + 1..] {
                let verdict = |ranking: &Ranking| {
                    Some(ranking.comparison(row(ranking, first)?, row(ranking, second)?).verdict)
                        .filter(|verdict| matches!(verdict, Verdict::Faster | Verdict::Slower))
                };
                match verdict(one).zip(verdict(other)) {
                    Some((a, b)) if a == b => alike += 1,
                    Some(_) => reversed.push(format!("{first} and {second} in {}", one.cell)),
                    None => {}
                }
            }
        }
    }
    (alike, reversed)
}
