//! A server that uses every core: a node per core, and all of them listen at one port.
//!
//!     cargo run --release -p estafette-net --example all_cores -- 4
//!
//! A node is one thread. With `Options::reuse_port` each node has a listener of its own at the same
//! address, and the kernel spreads the connections over them. The nodes share nothing, so no lock
//! and no hand-over is between them.
//!
//! The program compares such a server of several nodes (default: one per core) with one of a single
//! node, by clients of its own: each connection sends a message, waits for the echo, and sends the
//! next one. Both servers and their clients are there all the time and work in turn, in short
//! slices, so that both see the same machine.
//!
//! Clients and servers share the cores. If there are no idle cores, more nodes cannot help, however
//! well they scale. The last line says so.

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use estafette_net::conformance::Usage;
use estafette_net::{Address, Endpoint, Event, Handle, Node, Options};
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The length of a message, in bytes.
const MESSAGE: [u8; 64] = [7; 64];
/// How long a client waits for the echoes that are under way at the end of a slice.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Clone, Copy)]
struct Plan {
    /// Of the server of several nodes.
    nodes: usize,
    /// Threads with clients, for either server.
    clients: usize,
    /// Of each of these threads.
    connections: usize,
    slice: Duration,
    /// Slices of each server.
    slices: usize,
}

fn main() -> ExitCode {
    match plan().and_then(|plan| compare(plan, &mut |line| println!("{line}"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The plan for as many nodes as the argument says.
fn plan() -> Result<Plan> {
    let cores = thread::available_parallelism()?.get();
    let nodes = match std::env::args().nth(1) {
        None => cores.max(2),
        Some(count) => count
            .parse::<NonZeroUsize>()
            .map_err(|_| format!("usage: all_cores [NODES], where NODES is a number from 1 on, not {count:?}"))?
            .get(),
    };
    Ok(Plan { nodes, clients: cores, connections: 64, slice: Duration::from_millis(50), slices: 60 })
}

/// The nodes of a server, and the handles that stop them.
struct Server {
    at: Address,
    handles: Vec<Handle<()>>,
    threads: Vec<thread::JoinHandle<std::io::Result<()>>>,
}

impl Server {
    /// Starts nodes that echo. The first one's port is everybody's.
    fn start(nodes: usize) -> Result<Server> {
        let options = Options::default().reuse_port(true);
        let mut at: Address = "tcp+msg://127.0.0.1:0".parse()?;
        let (mut handles, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..nodes {
            let mut node = Node::<()>::new()?;
            let handle = node.handle();
            let listener = handle.listen_with(&at, &options)?;
            at = handle.local_address(listener).ok_or("a listener has an address")?;
            handles.push(handle.clone());
            threads.push(thread::spawn(move || {
                node.run(|event| {
                    if let Event::Message(from, message) = event
                        && !handle.send(from, &message).is_accepted()
                    {
                        handle.close(from);
                    }
                })
            }));
        }
        Ok(Server { at, handles, threads })
    }

    fn stop(self) -> Result<()> {
        self.handles.iter().for_each(Handle::stop);
        for thread in self.threads {
            thread.join().map_err(|_| "a node's thread has panicked")??;
        }
        Ok(())
    }
}

/// What a thread with clients did in a slice.
struct Work {
    messages: u64,
    cpu: Duration,
}

/// A thread with clients: it works in slices, and gets the end of each by a channel.
struct Clients {
    slices: Sender<Instant>,
    done: Receiver<Result<Work>>,
}

impl Clients {
    /// Connects to the server and waits until all connections are open.
    fn start(at: Address, connections: usize) -> Result<Clients> {
        let (slices, to_do) = channel::<Instant>();
        let (report, done) = channel();
        thread::spawn(move || {
            let opened = connect(&at, connections);
            report.send(opened.as_ref().map(|_| Work::NONE).map_err(|error| error.to_string().into())).ok();
            let Ok((mut node, endpoints)) = opened else { return };
            for until in to_do {
                if report.send(work(&mut node, &endpoints, until)).is_err() {
                    return;
                }
            }
        });
        let clients = Clients { slices, done };
        clients.wait()?;
        Ok(clients)
    }

    fn wait(&self) -> Result<Work> {
        self.done.recv().map_err(|_| "a client's thread has panicked")?
    }
}

impl Work {
    const NONE: Work = Work { messages: 0, cpu: Duration::ZERO };
}

fn connect(at: &Address, connections: usize) -> Result<(Node<()>, Vec<Endpoint>)> {
    let mut node = Node::new()?;
    let handle = node.handle();
    let endpoints: Vec<_> = (0..connections).map(|_| handle.connect(at)).collect::<std::result::Result<_, _>>()?;
    let mut open = 0;
    while open < connections {
        match node.next(Some(PATIENCE))? {
            Some(Event::Connected(_)) => open += 1,
            Some(Event::Closed { reason, .. }) => return Err(reason.into()),
            Some(_) => {}
            None => return Err("the server does not accept".into()),
        }
    }
    Ok((node, endpoints))
}

/// Sends on every connection, and again after each echo, until the time has come. Then waits for
/// the echoes that are under way.
fn work(node: &mut Node<()>, endpoints: &[Endpoint], until: Instant) -> Result<Work> {
    let before = Usage::of_this_thread()?;
    let handle = node.handle();
    let send = |to| match handle.send(to, &MESSAGE) {
        outcome if outcome.is_accepted() => Ok(()),
        outcome => Err(format!("a message was not accepted: {outcome:?}")),
    };
    endpoints.iter().try_for_each(|to| send(*to))?;
    let (mut messages, mut under_way) = (0, endpoints.len());
    while under_way > 0 {
        match node.next(Some(PATIENCE))? {
            // An echo takes much longer than a look at the clock.
            Some(Event::Message(from, _)) if Instant::now() < until => {
                messages += 1;
                send(from)?;
            }
            Some(Event::Message(..)) => under_way -= 1,
            Some(Event::Closed { reason, .. }) => return Err(reason.into()),
            Some(_) => {}
            None => return Err(format!("no echo within {} s", PATIENCE.as_secs()).into()),
        }
    }
    Ok(Work { messages, cpu: (Usage::of_this_thread()? - before).cpu })
}

/// A server and its clients.
struct Side {
    server: Server,
    clients: Vec<Clients>,
}

/// What a slice of one side showed, per second.
#[derive(Clone, Copy)]
struct Slice {
    messages: f64,
    /// Processor time of the server and of the clients, in cores.
    server: f64,
    clients: f64,
}

impl Side {
    fn start(nodes: usize, plan: Plan) -> Result<Side> {
        let server = Server::start(nodes)?;
        let clients = (0..plan.clients).map(|_| Clients::start(server.at.clone(), plan.connections));
        Ok(Side { clients: clients.collect::<Result<_>>()?, server })
    }

    /// Lets the clients work for a slice.
    fn run(&self, slice: Duration) -> Result<Slice> {
        let (before, begun) = (process_time(), Instant::now());
        let until = begun + slice;
        for clients in &self.clients {
            clients.slices.send(until).map_err(|_| "a client's thread has ended")?;
        }
        let (mut messages, mut cpu) = (0, Duration::ZERO);
        for clients in &self.clients {
            let work = clients.wait()?;
            messages += work.messages;
            cpu += work.cpu;
        }
        // The echoes behind the end of the slice cost time too, and are few.
        let (all, took) = (process_time() - before, begun.elapsed().as_secs_f64());
        let server = all.saturating_sub(cpu).as_secs_f64() / took;
        Ok(Slice { messages: messages as f64 / slice.as_secs_f64(), server, clients: cpu.as_secs_f64() / took })
    }
}

/// The processor time of all threads of this process.
fn process_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

/// The median, and the first and the third quartile.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Quartiles {
    median: f64,
    first: f64,
    third: f64,
}

impl Quartiles {
    fn of(values: impl Iterator<Item = f64>) -> Quartiles {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let [median, first, third] = [2, 1, 3].map(|quarters| values[values.len() * quarters / 4]);
        Quartiles { median, first, third }
    }

    fn in_units(self, unit: f64) -> Quartiles {
        Quartiles { median: self.median / unit, first: self.first / unit, third: self.third / unit }
    }
}

impl fmt::Display for Quartiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2} {:.2}]", self.median, self.first, self.third)
    }
}

/// Measures both servers in turn and prints what they did.
fn compare(plan: Plan, print: &mut dyn FnMut(String)) -> Result<()> {
    let sides = [Side::start(1, plan)?, Side::start(plan.nodes, plan)?];
    let mut slices = [Vec::new(), Vec::new()];
    for round in 0..plan.slices {
        // Which of them is first changes from round to round.
        for which in [round % 2, 1 - round % 2] {
            slices[which].push(sides[which].run(plan.slice)?);
        }
    }
    let Plan { nodes, clients, connections, slice, slices: count } = plan;
    let cores = thread::available_parallelism()?;
    print(format!(
        "{cores} cores; {clients} threads with {connections} clients each; messages of {} bytes; {count} slices of \
         {slice:?} for each server, in turn",
        MESSAGE.len()
    ));
    print("nodes   thousand echoes/s, median [quartiles]   cores used by the server, by the clients".to_owned());
    for (nodes, slices) in [1, nodes].into_iter().zip(&slices) {
        let rate = Quartiles::of(slices.iter().map(|slice| slice.messages)).in_units(1000.0);
        let server = Quartiles::of(slices.iter().map(|slice| slice.server));
        let clients = Quartiles::of(slices.iter().map(|slice| slice.clients));
        print(format!("{nodes:<5}   {:<37}   {server}, {clients}", rate.to_string()));
    }
    let ratio = Quartiles::of(slices[1].iter().zip(&slices[0]).map(|(many, one)| many.messages / one.messages));
    print(format!("{nodes} nodes have {ratio} times the rate of 1"));
    let used = Quartiles::of(slices[0].iter().map(|slice| slice.server + slice.clients)).median;
    print(what_limits(used, cores.get()));
    for side in sides {
        // The clients go first, so that no connection is reset.
        drop(side.clients);
        side.server.stop()?;
    }
    Ok(())
}

/// Says whether more nodes can help on this machine, from how many cores are in use with one node.
fn what_limits(used: f64, cores: usize) -> String {
    let idle = (cores as f64 - used).max(0.0);
    let left = format!("with 1 node, server and clients use {used:.2} of {cores} cores, which leaves {idle:.2}");
    if idle < 0.25 {
        format!("{left}: the cores are the limit, and more nodes can only share them with the clients")
    } else {
        format!("{left} to more nodes and other programs; with clients on other machines it would be more")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_answer() {
        let plan = Plan { nodes: 2, clients: 2, connections: 4, slice: Duration::from_millis(20), slices: 3 };
        let mut lines = Vec::new();
        // An echo that is missing is an error.
        compare(plan, &mut |line| lines.push(line)).unwrap();
        assert_eq!(lines.len(), 6, "{lines:?}");
    }

    #[test]
    fn idle_cores_are_told_from_busy_ones() {
        assert!(what_limits(1.95, 2).contains("the cores are the limit"));
        assert!(what_limits(1.5, 8).contains("leaves 6.50 to more nodes"));
    }
}
