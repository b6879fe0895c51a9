//! The subscriber in Python of docs/nats-format.md, as it is printed there.

use std::fs;
use std::process::{Command, Stdio};

use crate::delivery::{BATCHES, from_file};
use crate::ground::{Ground, numbers, until};
use crate::runner::tests;
use crate::server::Server;

tests![the_documented_subscriber_reads_a_topic,];

fn program() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nats-format.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, program) = page.split_once("```python\n").unwrap();
    program.split_once("```").unwrap().0.to_owned()
}

fn the_documented_subscriber_reads_a_topic() {
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        let absent = "skipped: there is no python3";
        assert!(std::env::var("ESTAFETTE_PEERS").as_deref() != Ok("required"), "{absent}");
        return eprintln!("the_documented_subscriber_reads_a_topic: {absent}");
    }
    for batch in BATCHES {
        subscribe(batch);
    }
}

fn subscribe(batch: &str) {
    let Some(server) = Server::start("") else { return };
    let ground = Ground::new(&from_file(batch), &server);
    ground.write("in.txt", numbers(1000));
    fs::write(ground.path("subscriber.py"), program()).unwrap();
    let printed = fs::File::create(ground.path("printed.txt")).unwrap();
    let mut subscriber = Command::new("python3")
        .arg(ground.path("subscriber.py"))
        .args(["127.0.0.1", &server.port().to_string(), "t.raw"])
        .stdin(Stdio::null())
        .stdout(printed)
        .spawn()
        .unwrap();
    server.until_subscribed("t.raw", 1);
    ground.run("edge").finished();
    let lines = until(|| Some(ground.lines("printed.txt")).filter(|lines| lines.len() == 1000));
    subscriber.kill().unwrap();
    subscriber.wait().unwrap();
    for (at, line) in lines.iter().enumerate() {
        let words: Vec<_> = line.split(' ').collect();
        let [producer, number, text] = words.as_slice() else { panic!("{line}") };
        assert!(producer.starts_with("edge-"), "{line}");
        assert_eq!((*number, *text), ((at + 1).to_string().as_str(), format!("{at:06}").as_str()));
    }
}
