//! A pipeline that runs in a thread, in its own folder.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use estafette_flow::{Options, Remote, Summary, Supervisor, config};
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A timeout that is longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Running {
    folder: TempDir,
    pub(crate) remote: Remote,
    summary: Receiver<Summary>,
    log: Receiver<String>,
}

impl Running {
    /// Starts the pipeline that this YAML describes.
    pub(crate) fn start(yaml: &str) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipeline.yml");
        fs::write(&path, format!("functions: []\n{yaml}")).unwrap();
        let checked = config::check(&path, &config::Options::default());
        let pipeline = checked.pipeline.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
        let options = Options { host_program: PathBuf::from("unused"), drain_timeout: PATIENCE };
        let supervisor = Supervisor::new(pipeline, options).unwrap();
        let remote = supervisor.remote();
        let ((lines, log), (sender, summary)) = (channel(), channel());
        thread::spawn(move || {
            let ran = tracing::subscriber::with_default(Log(Mutex::new(lines)), || supervisor.run());
            sender.send(ran.unwrap()).unwrap();
        });
        Running { folder, remote, summary, log }
    }

    /// Waits for a log line that contains `before`. Returns the rest of the line.
    pub(crate) fn logged(&self, before: &str) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE).expect("it is logged");
            if let Some((_, rest)) = line.split_once(before) {
                return rest.to_owned();
            }
        }
    }

    /// The current lines of a file.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until a file has `count` lines.
    pub(crate) fn until_lines(&self, file: &str, count: usize) -> Vec<String> {
        until(|| Some(self.lines(file)).filter(|lines| lines.len() >= count))
    }

    /// Ends the pipeline, and waits for its end.
    pub(crate) fn end(&self) -> Summary {
        self.remote.end();
        self.summary.recv_timeout(PATIENCE).expect("the pipeline ends")
    }
}

/// Polls until a value is found.
pub(crate) fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "timeout");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends log lines to a channel.
struct Log(Mutex<Sender<String>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        // The test may have ended already.
        self.0.lock().unwrap().send(line.0).ok();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}
