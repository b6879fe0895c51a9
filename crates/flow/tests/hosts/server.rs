//! A `nats-server` on a loopback port, which can be killed and started again.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::ground::{PATIENCE, until};

/// A server with a folder of its own.
pub(crate) struct Server {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    /// The port of its monitoring.
    monitor: u16,
    child: Option<Child>,
}

/// The configuration of a server with JetStream.
pub(crate) const JETSTREAM: &str = "jetstream { store_dir: \"store\" }\n";

/// The program. Returns none, and prints why, if no supported version is installed.
///
/// With `ESTAFETTE_PEERS=required` this is an error, unless `ESTAFETTE_OLD_NATS=skip`.
pub(crate) fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian installs servers there, and not every user's `PATH` has it.
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut programs = folders.map(|folder| folder.join("nats-server")).filter(|path| path.is_file());
    let program = programs.find(|program| is_supported(program));
    if program.is_none() {
        let is = |name, value| env::var(name).as_deref() == Ok(value);
        let absent = "skipped: there is no nats-server 2.10.27 or newer";
        assert!(!is("ESTAFETTE_PEERS", "required") || is("ESTAFETTE_OLD_NATS", "skip"), "{absent}");
        eprintln!("{absent}");
    }
    program
}

/// Free ports. None is of those that the system gives to connections, which could take a port while
/// its server is down. All are open until all are known, so that they differ.
fn free_ports<const N: usize>() -> [u16; N] {
    const PORTS: std::ops::Range<u16> = 15_000..31_000;
    // Tests run at the same time, each in a process of its own: the next number has other ports.
    const PER_PROCESS: u32 = 16;
    let lanes = u32::from(PORTS.end - PORTS.start) / PER_PROCESS;
    let first = PORTS.start + u16::try_from(std::process::id() % lanes * PER_PROCESS).unwrap();
    let ports = (first..PORTS.end).chain(PORTS.start..first);
    let free: Vec<TcpListener> =
        ports.filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()).take(N).collect();
    let ports: Vec<u16> = free.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
    ports.try_into().expect("there are free ports")
}

fn is_supported(program: &Path) -> bool {
    let output = Command::new(program).arg("--version").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, version) = text.trim().split_once(": v").unwrap_or_else(|| panic!("{}: {text}", program.display()));
    let release = version.split(['-', '+']).next().unwrap();
    let numbers: Vec<u32> = release.split('.').map(|number| number.parse().unwrap()).collect();
    numbers.as_slice() >= [2, 10, 27].as_slice()
}

impl Server {
    /// Starts a server. None if there is no program, which is reported.
    pub(crate) fn start(configuration: &str) -> Option<Server> {
        let mut server = Server::at(find()?, free_ports());
        server.configure(configuration);
        server.run();
        Some(server)
    }

    /// Starts three servers that form a cluster, and waits until it has formed. None if there is no
    /// program, which is reported.
    pub(crate) fn start_cluster() -> Option<Vec<Server>> {
        let mut servers = Server::start_forming_cluster()?;
        Server::until_formed(&mut servers);
        Some(servers)
    }

    /// Waits until servers that were started together have formed a cluster.
    ///
    /// On a busy machine, one in 25 clusters of nats-server 2.10.27 stays one of two servers: they
    /// never accept the third, and often not after a restart either. Such servers are started again
    /// with empty folders.
    #[track_caller]
    pub(crate) fn until_formed(servers: &mut [Server]) {
        // A leader may accept a server and be lost before the others know it.
        const SETTLED: Duration = Duration::from_secs(1);
        // Shorter than a host waits for a place for a stream before it gives up.
        const USUALLY_FORMED: Duration = Duration::from_secs(6);
        let mut started_at = Instant::now();
        let mut formed_at = None;
        let mut was_complete = false;
        until(|| {
            was_complete |= has_leader_of_all(servers);
            if !are_a_cluster(servers) {
                formed_at = None;
            } else if formed_at.get_or_insert_with(Instant::now).elapsed() > SETTLED {
                return Some(());
            }
            // No stream with a replica on each server can be there, so no message is lost.
            if started_at.elapsed() > USUALLY_FORMED && !was_complete {
                servers.iter_mut().for_each(Server::kill);
                servers.iter_mut().for_each(Server::run_empty);
                (started_at, formed_at) = (Instant::now(), None);
            }
            None
        });
    }

    /// Starts three servers that form a cluster. None if there is no program, which is reported.
    pub(crate) fn start_forming_cluster() -> Option<Vec<Server>> {
        let program = find()?;
        let [a, b, c, rest @ ..]: [u16; 9] = free_ports();
        let routes = [a, b, c].map(|route| format!("nats://127.0.0.1:{route}")).join(", ");
        let servers = [a, b, c].into_iter().zip(rest.chunks(2)).enumerate().map(|(index, (route, ports))| {
            let mut server = Server::at(program.clone(), [ports[0], ports[1]]);
            server.configure(&format!(
                "server_name: n{index}\n{JETSTREAM}cluster {{ name: c, listen: \"127.0.0.1:{route}\", routes: [{routes}] }}\n"
            ));
            server.run();
            server
        });
        Some(servers.collect())
    }

    fn at(program: PathBuf, [port, monitor]: [u16; 2]) -> Server {
        Server { program, folder: tempfile::tempdir().unwrap(), port, monitor, child: None }
    }

    /// Waits until its streams are as far as those of the other servers.
    #[track_caller]
    pub(crate) fn until_healthy(&self) {
        until(|| self.monitored("/healthz").ok().filter(|answer| answer.starts_with("HTTP/1.1 200 ")));
    }

    /// Writes the configuration, for the next start or reload.
    pub(crate) fn configure(&self, configuration: &str) {
        let text = format!("host: 127.0.0.1\nport: {}\nhttp: 127.0.0.1:{}\n{configuration}", self.port, self.monitor);
        fs::write(self.folder.path().join("config"), text).unwrap();
    }

    /// Starts it again, with the folder and the port that it had.
    pub(crate) fn run(&mut self) {
        assert!(self.child.is_none());
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(&self.program);
        command.args(["-c", "config"]).current_dir(self.folder.path());
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(log));
        self.child = Some(command.spawn().unwrap());
        until(|| {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            assert!(ended.is_none(), "it has ended: {}", self.log());
            TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()
        });
    }

    /// Starts it with an empty folder, as if for the first time.
    fn run_empty(&mut self) {
        let _ = fs::remove_dir_all(self.folder.path().join("store"));
        self.run();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends it as an operator does, so that it says goodbye to the other servers.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        self.child.take().unwrap().wait().unwrap();
    }

    /// Lets it read its configuration again.
    pub(crate) fn reload(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// Waits until there are so many subscriptions of a subject, by a monitoring connection.
    #[track_caller]
    pub(crate) fn until_subscribed(&self, subject: &str, count: usize) {
        let subject = format!("\"subject\": \"{subject}\"");
        until(|| (self.monitored("/subsz?subs=1").unwrap().matches(&subject).count() >= count).then_some(()));
    }

    /// Waits until a stream keeps so many messages.
    #[track_caller]
    pub(crate) fn until_stored(&self, stream: &str, count: u64) {
        until(|| (self.stored(stream) == Some(count)).then_some(()));
    }

    /// How many messages a stream keeps. None if there is no such stream.
    pub(crate) fn stored(&self, stream: &str) -> Option<u64> {
        let name = format!("\"name\": \"{stream}\"");
        let answer = self.monitored("/jsz?streams=1").unwrap();
        let (_, rest) = answer.split_once(&name)?;
        let (_, rest) = rest.split_once("\"messages\": ")?;
        rest.split(',').next()?.trim().parse().ok()
    }

    /// What the server says of itself at a path.
    fn monitored(&self, path: &str) -> io::Result<String> {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, self.monitor))?;
        client.set_read_timeout(Some(PATIENCE))?;
        write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        client.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// What each server says of its cluster.
fn states(servers: &[Server]) -> Vec<String> {
    servers.iter().map(|server| server.monitored("/jsz").unwrap_or_default()).collect()
}

fn has_size(state: &str, servers: &[Server]) -> bool {
    state.contains(&format!("\"cluster_size\": {},", servers.len()))
}

/// Whether a server leads a cluster of all.
fn has_leader_of_all(servers: &[Server]) -> bool {
    let states = states(servers);
    states.iter().enumerate().any(|(at, it)| it.contains(&format!("\"leader\": \"n{at}\"")) && has_size(it, servers))
}

/// Whether all servers know each other, and all others follow the one that leads.
fn are_a_cluster(servers: &[Server]) -> bool {
    let states = states(servers);
    let know_all = states.iter().all(|state| state.contains("\"leader\": \"n") && has_size(state, servers));
    let followers: usize = states.iter().map(|state| state.matches("\"current\": true").count()).sum();
    know_all && followers == servers.len() - 1
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() && thread::panicking() {
            let log = self.log();
            let last = log.lines().rev().take(30).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
            eprintln!(
                "the end of the server's log:\n{last}\nits streams: {:?}",
                self.monitored("/jsz?streams=1&consumers=1")
            );
        }
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
