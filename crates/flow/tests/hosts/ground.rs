//! The folders and processes of a pipeline's hosts.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use estafette_flow::config::{self, CheckedHost};
use estafette_flow::status::ConnectorStatus;
use estafette_flow::{MetricsServer, Remote, Summary, Supervisor};
use tempfile::TempDir;

use crate::host;
use crate::server::Server;

/// A timeout that is longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Polls until a value is found.
#[track_caller]
pub(crate) fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "timeout");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Lines with the numbers from 0 on.
pub(crate) fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("{number:06}"))
}

/// The pipeline's file, which all hosts read. Each host has a folder of its own for what it writes.
pub(crate) struct Ground {
    folder: TempDir,
}

impl Ground {
    /// Writes a pipeline. `SERVER` stands for the URL of the server.
    pub(crate) fn new(yaml: &str, server: &Server) -> Ground {
        Ground::at(yaml, &server.url())
    }

    pub(crate) fn at(yaml: &str, url: &str) -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let modules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../guest/wat");
        for (module, name) in [("forward.wat", "forward.wat"), ("faulty/trap.wat", "trap.wat")] {
            fs::copy(modules.join(module), folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("pipeline.yml"), yaml.replace("SERVER", url)).unwrap();
        Ground { folder }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, lines: impl Iterator<Item = String>) {
        fs::write(self.path(file), lines.map(|line| line + "\n").collect::<String>()).unwrap();
    }

    /// The current lines of a file.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(file)).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// The lines of a file in the order in which they came first. A message that is delivered again
    /// comes later once more.
    pub(crate) fn first_lines(&self, file: &str) -> Vec<String> {
        let mut seen = HashSet::new();
        self.lines(file).into_iter().filter(|line| seen.insert(line.clone())).collect()
    }

    /// Waits until a file has these lines, in any order, and maybe some of them twice.
    #[track_caller]
    pub(crate) fn until_all(&self, file: &str, wanted: impl Iterator<Item = String>) {
        let wanted: BTreeSet<_> = wanted.collect();
        let start = Instant::now();
        loop {
            let lines: BTreeSet<_> = self.lines(file).into_iter().collect();
            if lines.is_superset(&wanted) {
                assert_eq!(lines.len(), wanted.len(), "{file} has nothing else");
                return;
            }
            let missing: Vec<_> = wanted.difference(&lines).take(10).collect();
            assert!(start.elapsed() < PATIENCE, "{file} has {} lines and not {missing:?}", lines.len());
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn checked(&self, host: CheckedHost) -> config::Checked {
        config::check(&self.path("pipeline.yml"), &config::Options { host, ..config::Options::default() })
    }

    /// The pipeline of all hosts.
    pub(crate) fn whole(&self) -> config::Pipeline {
        self.checked(CheckedHost::All).pipeline.unwrap()
    }

    /// The part of a host.
    fn part(&self, host: &str) -> config::Pipeline {
        let checked = self.checked(CheckedHost::Named(host));
        checked.pipeline.unwrap_or_else(|| panic!("{:?}", checked.diagnostics)).part(host).unwrap()
    }

    /// Runs the part of a host in a thread.
    pub(crate) fn run(&self, host: &str) -> Running {
        self.run_with(host, |_| {})
    }

    /// As [`Ground::run`], but the host is asked to end before it starts.
    pub(crate) fn run_and_end(&self, host: &str) -> Running {
        self.run_with(host, Remote::end)
    }

    fn run_with(&self, host: &str, before: impl FnOnce(&Remote)) -> Running {
        self.run_changed(host, |_| {}, |supervisor| before(&supervisor.remote()))
    }

    /// As [`Ground::run`], but the part of the host is changed before, and its supervisor is seen
    /// before it runs.
    pub(crate) fn run_changed(
        &self,
        host: &str,
        change: impl FnOnce(&mut config::Pipeline),
        before: impl FnOnce(&mut Supervisor),
    ) -> Running {
        let mut part = self.part(host);
        change(&mut part);
        let mut supervisor = Supervisor::new(part, host::options_of_a_run()).unwrap();
        let remote = supervisor.remote();
        before(&mut supervisor);
        let (sender, ended) = channel();
        thread::spawn(move || drop(sender.send(supervisor.run().map_err(|error| format!("{error:#}")))));
        Running { remote, ended }
    }

    /// Runs the part of a host in a process.
    pub(crate) fn spawn(&self, host: &str) -> Process {
        self.spawn_by(Command::new("/proc/self/exe"), host)
    }

    /// Runs the part of a host in a process, by a command that runs this program.
    pub(crate) fn spawn_by(&self, mut command: Command, host: &str) -> Process {
        let child =
            command.arg(host::ARGUMENT).arg(self.path("pipeline.yml")).arg(host).stdin(Stdio::null()).spawn().unwrap();
        Process(child)
    }
}

/// A host in a thread.
pub(crate) struct Running {
    pub(crate) remote: Remote,
    ended: Receiver<Result<Summary, String>>,
}

impl Running {
    /// Waits for its end.
    #[track_caller]
    pub(crate) fn ended(&self) -> Result<Summary, String> {
        self.ended.recv_timeout(PATIENCE).expect("it ends")
    }

    /// Waits until it has ended or a connector has a problem. Returns why.
    #[track_caller]
    pub(crate) fn ended_or_problem(&self, connector: &str) -> String {
        until(|| match self.ended.try_recv() {
            Ok(ended) => Some(ended.map_or_else(|error| error, |summary| summary.failures.join("; "))),
            Err(TryRecvError::Empty) => self.problem(connector),
            Err(TryRecvError::Disconnected) => panic!("it has ended without a result"),
        })
    }

    /// Waits until all of its work is done.
    #[track_caller]
    pub(crate) fn finished(&self) -> Summary {
        let summary = self.ended().unwrap();
        assert!(summary.failures.is_empty(), "{:?}", summary.failures);
        summary
    }

    /// Drains it, and waits for its end.
    #[track_caller]
    pub(crate) fn end(&self) -> Summary {
        self.remote.end();
        self.finished()
    }

    /// Ends it at once, and waits for its end.
    #[track_caller]
    pub(crate) fn stop(&self) -> Summary {
        self.remote.end();
        self.remote.end();
        self.ended().unwrap()
    }

    /// Waits until a connector has ended.
    #[track_caller]
    pub(crate) fn until_ended(&self, connector: &str) {
        until(|| self.remote.status()?.connectors.into_iter().find(|it| it.name == connector && it.is_ended));
    }

    /// Waits until a connector has a problem that contains this text. Panics if the host ends.
    #[track_caller]
    pub(crate) fn until_problem(&self, connector: &str, text: &str) -> String {
        until(|| {
            self.assert_not_ended();
            self.problem(connector).filter(|problem| problem.contains(text))
        })
    }

    /// Waits until a connector has taken a message from the pipeline, so it has a connection: while
    /// it makes its first one, it has no problem. Panics if the host ends.
    #[track_caller]
    pub(crate) fn until_received(&self, connector: &str) {
        until(|| {
            self.assert_not_ended();
            (self.connector(connector)?.received_messages > 0).then_some(())
        });
    }

    /// Waits until a connector has no problem any more. Panics if the host ends.
    #[track_caller]
    pub(crate) fn until_good(&self, connector: &str) {
        until(|| {
            self.assert_not_ended();
            self.connector(connector)?.problem.is_none().then_some(())
        });
    }

    #[track_caller]
    fn assert_not_ended(&self) {
        if let Ok(ended) = self.ended.try_recv() {
            panic!("it has ended: {ended:?}");
        }
    }

    /// What `/health` answers.
    pub(crate) fn health(&self) -> String {
        let remote = self.remote.clone();
        let server = MetricsServer::start(([127, 0, 0, 1], 0).into(), move || remote.status()).unwrap();
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    fn problem(&self, connector: &str) -> Option<String> {
        self.connector(connector)?.problem
    }

    /// None if the host does not answer, also when it has ended.
    fn connector(&self, name: &str) -> Option<ConnectorStatus> {
        let mut connectors = self.remote.status()?.connectors.into_iter();
        Some(connectors.find(|it| it.name == name).unwrap_or_else(|| panic!("there is no {name}")))
    }
}

impl Drop for Running {
    /// Says what a host was doing when its test failed.
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        if let Ok(ended) = self.ended.try_recv() {
            eprintln!("it has ended: {ended:?}");
        } else if let Some(status) = self.remote.status() {
            eprintln!("{:#?}\n{:#?}", status.edges, status.connectors);
        }
    }
}

/// A host in a process.
pub(crate) struct Process(Child);

impl Process {
    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until all of its work is done.
    #[track_caller]
    pub(crate) fn finished(&mut self) {
        let status = until(|| self.0.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
