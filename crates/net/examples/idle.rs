//! Measures what idle connections cost a node:
//!
//! - how fast it accepts them, compared with a loop that only accepts, and with one that also adds
//!   each to epoll;
//! - the memory of each connection;
//! - the CPU time and the wake-ups of all of them while they are idle;
//! - whether they still reply afterwards.
//!
//! Run it with:
//!
//!     cargo run --release -p estafette-net --example idle -- 10000
//!
//! A second process connects, in batches. A whole batch waits in the listener's backlog before its
//! acceptance is timed, so the speed of connecting is not measured. The node and the loops get
//! their batches in turn. They are compared batch by batch, by CPU time, which other load on the
//! machine affects little.

use std::error::Error;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use estafette_net::conformance::Usage;
use estafette_net::{Endpoint, Event, Limits, Node, Outcome};
use memory::resident;
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, getsockname, listen, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[path = "../tests/common/memory.rs"]
#[allow(unreachable_pub, reason = "the tests use it too")]
mod memory;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How many connections wait to be accepted at a time; less than any usual backlog.
const BATCH: usize = 500;
const ROUNDS: usize = 10;
const IDLE: Duration = Duration::from_secs(5);
/// One in this many connections is tested for a reply.
const SAMPLE: usize = 100;
/// Descriptors needed besides those of the connections.
const BESIDES: u64 = 64;

fn main() -> Result<()> {
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        Some("connect") => connect(),
        None => compare(10_000),
        Some(count) => {
            let count: NonZeroUsize = count.parse().map_err(|_| format!("usage: idle [CONNECTIONS], not {count:?}"))?;
            compare(count.get())
        }
    }
}

/// Raises the limit of open descriptors as far as allowed.
fn make_room(count: usize) -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let needed = count as u64 + BESIDES;
    if maximum.is_some_and(|maximum| maximum < needed) {
        let most = maximum.unwrap_or_default();
        return Err(format!(
            "{count} connections need {needed} descriptors, and a process may have {most}: ask for {} connections, or \
             raise the hard limit (as root: prlimit --pid $$ --nofile={needed})",
            most.saturating_sub(BESIDES)
        )
        .into());
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// The process that connects.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start() -> Result<Client> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("connect").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Client { child, input: input.ok_or("no input")?, output: BufReader::new(output.ok_or("no output")?) })
    }

    fn ask(&mut self, what: &str) -> Result<()> {
        writeln!(self.input, "{what}")?;
        Ok(())
    }

    fn done(&mut self) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line == "done\n" { Ok(()) } else { Err("the process that connects has failed".into()) }
    }

    /// Makes the process connect, and returns when all connections are open.
    fn connect(&mut self, port: u16, count: usize) -> Result<()> {
        self.ask(&format!("connect {port} {count}"))?;
        self.done()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The second process: handles requests until its input ends.
fn connect() -> Result<()> {
    let mut streams = Vec::new();
    for line in io::stdin().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["connect", port, count] => {
                let port: u16 = port.parse()?;
                for _ in 0..count.parse()? {
                    streams.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?);
                }
            }
            ["talk"] => {
                for stream in streams.iter_mut().step_by(SAMPLE) {
                    stream.write_all(b"ping")?;
                    let mut answer = [0; 4];
                    stream.read_exact(&mut answer)?;
                    if &answer != b"ping" {
                        return Err("wrong reply".into());
                    }
                }
            }
            ["close"] => streams.clear(),
            _ => return Err(format!("unknown request: {line}").into()),
        }
        println!("done");
    }
    Ok(())
}

fn batches(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(BATCH).map(move |at| BATCH.min(count - at))
}

/// CPU time of this thread.
fn spent() -> Result<Duration> {
    Ok(Usage::of_this_thread()?.cpu)
}

/// A loop that accepts connections, and adds them to epoll if `poll` is set.
struct Loop {
    listener: OwnedFd,
    port: u16,
    poll: Option<OwnedFd>,
    held: Vec<OwnedFd>,
}

impl Loop {
    fn new(count: usize, adds: bool) -> Result<Loop> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        listen(&listener, 4096)?;
        let port = SocketAddrV4::try_from(getsockname(&listener)?)?.port();
        let poll = if adds { Some(epoll::create(epoll::CreateFlags::CLOEXEC)?) } else { None };
        Ok(Loop { listener, port, poll, held: Vec::with_capacity(count) })
    }

    /// Accepts `count` connections, and returns the CPU time of that.
    fn accept(&mut self, client: &mut Client, count: usize) -> Result<Duration> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        client.connect(self.port, count)?;
        let before = spent()?;
        for _ in 0..count {
            let accepted = accept_with(&self.listener, flags)?;
            if let Some(poll) = &self.poll {
                epoll::add(poll, &accepted, epoll::EventData::new_u64(self.held.len() as u64), interest)?;
            }
            self.held.push(accepted);
        }
        Ok(spent()? - before)
    }
}

/// A node with a listener.
struct Server {
    node: Node,
    port: u16,
}

impl Server {
    fn new(count: usize) -> Result<Server> {
        let mut limits = Limits::default();
        limits.connections = limits.connections.max(count + 1);
        limits.accepts = u32::MAX;
        let node = Node::with_limits(limits)?;
        let handle = node.handle();
        let listener = handle.listen("tcp://127.0.0.1:0")?;
        let port = handle.local_address(listener).and_then(|address| address.port()).ok_or("no port")?;
        Ok(Server { node, port })
    }

    /// Accepts `count` connections, and returns the CPU time of that.
    fn accept(&mut self, client: &mut Client, count: usize) -> Result<Duration> {
        client.connect(self.port, count)?;
        let (before, mut accepted) = (spent()?, 0);
        while accepted < count {
            self.node.poll(None, |event| accepted += usize::from(matches!(event, Event::Accepted { .. })))?;
        }
        Ok(spent()? - before)
    }

    /// The usage while nothing happens.
    fn idle(&mut self) -> Result<Usage> {
        let before = Usage::of_this_thread()?;
        let events = self.node.poll(Some(IDLE), |_| {})?;
        let spent = Usage::of_this_thread()? - before;
        if events == 0 { Ok(spent) } else { Err(format!("{events} events while idle").into()) }
    }

    /// Replies to `count` messages.
    fn answer(&mut self, client: &mut Client, count: usize) -> Result<()> {
        client.ask("talk")?;
        let handle = self.node.handle();
        let (mut answered, mut refused): (usize, Option<(Endpoint, Outcome)>) = (0, None);
        while answered < count {
            self.node.poll(None, |event| match event {
                Event::Message(from, message) => {
                    answered += 1;
                    let outcome = handle.send(from, &message);
                    if outcome != Outcome::Sent {
                        refused = Some((from, outcome));
                    }
                }
                Event::Closed { endpoint, .. } => refused = Some((endpoint, Outcome::Closed)),
                _ => {}
            })?;
            if let Some((endpoint, outcome)) = refused {
                return Err(format!("{endpoint:?} got no reply: {outcome:?}").into());
            }
        }
        client.done()
    }

    fn end(self, client: &mut Client) -> Result<()> {
        drop(self.node);
        client.ask("close")?;
        client.done()
    }
}

/// The median, the first and the third quartile.
fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    [2, 1, 3].map(|quarters| values[values.len() * quarters / 4])
}

/// The CPU time per connection of the node, of the accepting loop, and of the loop that also adds
/// to epoll, batch by batch. Each gets a third of the connections.
fn by_turns(client: &mut Client, count: usize) -> Result<Vec<[f64; 3]>> {
    let count = count.div_ceil(3);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let mut server = Server::new(count)?;
        let (mut alone, mut adds) = (Loop::new(count, false)?, Loop::new(count, true)?);
        for batch in batches(count) {
            let mut took = [Duration::ZERO; 3];
            for turn in 0..3 {
                // The order rotates from batch to batch.
                let which = (turn + times.len()) % 3;
                took[which] = match which {
                    0 => server.accept(client, batch)?,
                    1 => alone.accept(client, batch)?,
                    _ => adds.accept(client, batch)?,
                };
            }
            times.push(took.map(|took| took.as_secs_f64() / batch as f64));
        }
        drop((alone, adds));
        server.end(client)?;
    }
    Ok(times)
}

fn compare(count: usize) -> Result<()> {
    make_room(count)?;
    let mut client = Client::start()?;

    // Measured with the first node of the process: later ones reuse memory that this one freed.
    let mut server = Server::new(count)?;
    let before = resident()?;
    for batch in batches(count) {
        server.accept(&mut client, batch)?;
    }
    let memory = resident()?.saturating_sub(before);
    let idle = server.idle()?;
    let sample = count.div_ceil(SAMPLE);
    server.answer(&mut client, sample)?;
    server.end(&mut client)?;

    let times = by_turns(&mut client, count)?;
    let [took, ..] = quartiles(times.iter().map(|[node, ..]| *node));
    println!("connections     {count}");
    println!("accepted        {:.0} a second of processor time by the node (of {} batches)", 1.0 / took, times.len());
    for (which, what) in [(2, "accepts and adds to epoll"), (1, "accepts")] {
        let [median, low, high] = quartiles(times.iter().map(|took| 100.0 * took[which] / took[0]));
        println!("                {median:.0} % of a loop that {what}; half of the batches {low:.0} to {high:.0} %");
    }
    println!("memory          {} bytes each (of the process, resident; not the system's)", memory / count);
    println!("idle for {IDLE:?}    {:?} of processor time, asleep {} times", idle.cpu, idle.sleeps);
    println!("replies         {sample} of {sample} connections tested");
    Ok(())
}
