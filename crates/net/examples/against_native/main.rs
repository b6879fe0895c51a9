//! Compares estafette-net with blocking sockets of the standard library, in slices that take turns.
//!
//!     cargo run --release -p estafette-net --example against_native -- [ROUNDS] [TRANSPORT…]
//!
//! For each transport and task, all contenders have fresh connections in each round and stay alive
//! together. They take turns in slices of some milliseconds, in mirrored order, so that a change of
//! the machine meets all of them. While one has its turn, the threads of the others sleep. Sender
//! and receiver run on two cores, and swap them after each round.
//!
//! A figure is the contender's rate as a share of the native one's: the median over rounds of the
//! median over slices next to each other, with its quartiles. WebSockets are compared with
//! tungstenite. `receiver's CPU` is the processor time of a stream's receiver for a message, as a
//! share of the native one's. `epoll alone` are the same native sockets in a loop that waits with
//! epoll and does nothing else: what an event loop costs at least.

mod contender;
mod epoll;
mod native;
mod net;

use std::fmt;

use rustix::thread::{CpuSet, Pid, sched_getaffinity};

use self::contender::{Contender, Slice};

/// The slices of each contender in a round. The first one is a warm-up.
const SLICES: usize = 21;
/// Batches are flushed, and buffers written, when they have this many bytes.
const BUFFER: usize = 64 << 10;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Tcp,
    Framed,
    Udp,
    WebSocket,
}

impl Wire {
    const ALL: [Wire; 4] = [Wire::Tcp, Wire::Framed, Wire::Udp, Wire::WebSocket];

    fn scheme(self) -> &'static str {
        match self {
            Wire::Tcp => "tcp",
            Wire::Framed => "tcp+msg",
            Wire::Udp => "udp",
            Wire::WebSocket => "ws",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Messages of this many bytes from one thread to another.
    Stream(usize),
    /// A byte to another thread, which sleeps until it arrives, and back.
    RoundTrip,
    /// A byte that the thread sends to itself.
    OneThread,
}

impl Task {
    const ALL: [Task; 5] =
        [Task::Stream(65_507), Task::Stream(1024), Task::Stream(64), Task::OneThread, Task::RoundTrip];

    fn len(self) -> usize {
        match self {
            Task::Stream(len) => len,
            Task::RoundTrip | Task::OneThread => 1,
        }
    }
}

impl Task {
    /// A name of a few characters.
    fn name(self) -> &'static str {
        match self {
            Task::Stream(_) => "stream",
            Task::RoundTrip => "trip",
            Task::OneThread => "one",
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Stream(len) => write!(f, "{len} B"),
            Task::RoundTrip => f.write_str("round trip, 1 B"),
            Task::OneThread => f.write_str("one thread, 1 B"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    /// One system call a message.
    Native,
    /// With `BufWriter` and `BufReader`.
    NativeBuffered,
    /// The same sockets, which a loop of its own waits for with epoll.
    Epoll,
    Net,
    NetBatch,
}

impl Library {
    fn all(wire: Wire, task: Task) -> Vec<Library> {
        let is_stream = matches!(task, Task::Stream(_));
        let mut libraries = vec![Library::Native, Library::Net];
        if wire != Wire::WebSocket {
            libraries.push(Library::Epoll);
        }
        if is_stream {
            libraries.push(Library::NetBatch);
        }
        if is_stream && matches!(wire, Wire::Tcp | Wire::Framed) {
            libraries.push(Library::NativeBuffered);
        }
        libraries
    }
}

fn main() -> Result<()> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let rounds = args.first().and_then(|first| first.parse().ok());
    if rounds.is_some() {
        args.remove(0);
    }
    if let Some(unknown) = args.iter().find(|arg| !Wire::ALL.iter().any(|wire| wire.scheme() == *arg)) {
        return Err(format!("unknown transport {unknown:?}: tcp, tcp+msg, udp or ws; before them the rounds").into());
    }
    let cores = cores()?;
    println!("share of the native rate: median [quartiles]\n");
    println!(
        "{:9}  {:16}  {:>9}  {:20}  {:20}  {:20}  {:20}  batch against buffered",
        "transport", "task", "native", "epoll alone", "net", "receiver's CPU", "batch"
    );
    for wire in Wire::ALL.into_iter().filter(|wire| args.is_empty() || args.iter().any(|arg| arg == wire.scheme())) {
        for task in Task::ALL {
            compare(wire, task, rounds.unwrap_or(10), cores)?;
        }
    }
    Ok(())
}

/// Two cores that this process may use.
fn cores() -> Result<[usize; 2]> {
    let allowed = sched_getaffinity(None::<Pid>)?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err("this comparison needs two cores".into()),
    }
}

/// Compares the libraries at one task, and prints a line.
fn compare(wire: Wire, task: Task, rounds: usize, cores: [usize; 2]) -> Result<()> {
    let libraries = Library::all(wire, task);
    // The slices of each library in each round.
    let mut measured = Vec::new();
    for round in 0..rounds {
        let roles = if round % 2 == 0 { cores } else { [cores[1], cores[0]] };
        measured.push(measure(wire, task, &libraries, roles)?);
    }
    let place = |library| libraries.iter().position(|one| *one == library);
    let compared = |of: Library, against: Library, figure: fn(&Slice) -> f64| -> String {
        let (Some(of), Some(against)) = (place(of), place(against)) else { return String::from("-") };
        let of_round = |slices: &Vec<Vec<Slice>>| {
            let pairs = slices[of].iter().zip(&slices[against]);
            quartiles(pairs.map(|(of, against)| figure(of) / figure(against)).collect())[1]
        };
        let [low, median, high] = quartiles(measured.iter().map(of_round).collect());
        format!("{median:.2} [{low:.2} - {high:.2}]")
    };
    let share = |of: Library, against: Library| compared(of, against, |slice| slice.rate);
    let receivers_cpu = match task {
        Task::Stream(_) => compared(Library::Net, Library::Native, |slice| slice.cpu),
        Task::RoundTrip | Task::OneThread => String::from("-"),
    };
    let [_, native, _] = quartiles(measured.iter().flat_map(|round| round[0].iter().map(|slice| slice.rate)).collect());
    println!(
        "{:9}  {:16}  {:>6.2} us  {:20}  {:20}  {:20}  {:20}  {}",
        wire.scheme(),
        task.to_string(),
        1e6 / native,
        share(Library::Epoll, Library::Native),
        share(Library::Net, Library::Native),
        receivers_cpu,
        share(Library::NetBatch, Library::Native),
        share(Library::NetBatch, Library::NativeBuffered),
    );
    Ok(())
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Measures one round, on fresh connections. Returns each library's slices.
fn measure(wire: Wire, task: Task, libraries: &[Library], roles: [usize; 2]) -> Result<Vec<Vec<Slice>>> {
    let mut contenders = Vec::new();
    for library in libraries {
        contenders.push(Contender::start(*library, wire, task, roles)?);
    }
    let mut slices = vec![Vec::new(); contenders.len()];
    for lap in 0..SLICES {
        let forth = 0..contenders.len();
        let order: Vec<usize> = if lap % 2 == 0 { forth.collect() } else { forth.rev().collect() };
        for at in order {
            let slice = contenders[at].slice(lap)?;
            if lap > 0 {
                slices[at].push(slice);
            }
        }
    }
    contenders.into_iter().try_for_each(Contender::stop)?;
    Ok(slices)
}
