//! The threads of one library, which take part in slices.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::epoll::{PolledStream, PolledUdp};
use crate::native::{Buffered, Native, Tungstenite, Udp};
use crate::net::Net;
use crate::{Library, Result, Task, Wire};

const SLICE: Duration = Duration::from_millis(5);
/// After which time the end of a slice is announced again, where the announcement may be lost. Few
/// announcements that are late fill no receive buffer.
const AGAIN: Duration = Duration::from_micros(200);

/// What a thread has to say of a slice.
struct Report {
    began: Instant,
    ended: Instant,
    /// How many messages it counted: 0, unless it is the one that counts.
    messages: u64,
    /// Its processor time.
    cpu: Duration,
}

/// The result of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    /// Messages per second.
    pub(crate) rate: f64,
    /// The processor time for a message of the thread that counts them, in seconds. In a stream,
    /// that is the receiver.
    pub(crate) cpu: f64,
}

/// The threads of one library.
pub(crate) struct Contender {
    /// Starts a slice, whose number is given.
    starts: Vec<Sender<u8>>,
    reports: Receiver<Result<Report>>,
    threads: Vec<JoinHandle<()>>,
}

impl Contender {
    pub(crate) fn start(library: Library, wire: Wire, task: Task, roles: [usize; 2]) -> Result<Contender> {
        let (reporter, reports) = channel();
        let (addresses, address) = channel();
        let acknowledged = Arc::new(AtomicU8::new(0));
        let sides = match task {
            Task::OneThread => vec![Side::Both],
            _ => vec![Side::Receiver(addresses), Side::Sender(address)],
        };
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for (side, core) in sides.into_iter().zip(roles) {
            let (start, slices) = channel();
            let (reporter, acknowledged) = (reporter.clone(), acknowledged.clone());
            starts.push(start);
            // A profiler shows threads by their names.
            let thread = thread::Builder::new().name(format!("{library:?} {}", task.name()));
            threads.push(thread.spawn(move || {
                let run = || -> Result<()> {
                    pin(core)?;
                    let worker = Worker { wire, task, acknowledged: &acknowledged, slices, reporter: &reporter };
                    worker.open(library, side)
                };
                if let Err(error) = run() {
                    let _ = reporter.send(Err(error));
                }
            })?);
        }
        Ok(Contender { starts, reports, threads })
    }

    /// Measures a slice.
    pub(crate) fn slice(&mut self, lap: usize) -> Result<Slice> {
        // 0 is for messages within a slice.
        let number = (lap % 255 + 1) as u8;
        for start in &self.starts {
            // A thread that has failed has reported why.
            let _ = start.send(number);
        }
        let reports = (0..self.starts.len()).map(|_| self.reports.recv()?).collect::<Result<Vec<_>>>()?;
        let began = reports.iter().map(|report| report.began).max().expect("a report");
        let ended = reports.iter().map(|report| report.ended).max().expect("a report");
        let Report { messages, cpu, .. } = reports.iter().max_by_key(|report| report.messages).expect("a report");
        let messages = *messages as f64;
        Ok(Slice { rate: messages / ended.duration_since(began).as_secs_f64(), cpu: cpu.as_secs_f64() / messages })
    }

    pub(crate) fn stop(self) -> Result<()> {
        drop(self.starts);
        self.threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".into()))
    }
}

/// The processor time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn pin(core: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(core);
    Ok(sched_setaffinity(None::<Pid>, &only)?)
}

/// Which ends a thread has. The receiver passes its address to the sender.
pub(crate) enum Side {
    Receiver(Sender<SocketAddr>),
    Sender(Receiver<SocketAddr>),
    Both,
}

impl Side {
    pub(crate) fn is_sender(&self) -> bool {
        !matches!(self, Side::Receiver(_))
    }
}

/// A thread that has one end of a connection, or both.
struct Worker<'a> {
    wire: Wire,
    task: Task,
    /// The last slice whose end the receiver has seen. A datagram that announces it may be lost.
    acknowledged: &'a AtomicU8,
    slices: Receiver<u8>,
    reporter: &'a Sender<Result<Report>>,
}

impl Worker<'_> {
    /// Opens a library's ends, and measures with them.
    fn open(&self, library: Library, side: Side) -> Result<()> {
        let is_sender = side.is_sender();
        match (library, self.wire) {
            (Library::Net | Library::NetBatch, _) => {
                let batched = library == Library::NetBatch && is_sender;
                self.serve(Net::open(self.wire, self.task.len(), side, batched)?, is_sender)
            }
            (Library::Epoll, Wire::Udp) => self.serve(PolledUdp::open(self.task, side)?, is_sender),
            (Library::Epoll, _) => self.serve(PolledStream::open(self.wire, self.task, side)?, is_sender),
            (_, Wire::Udp) => self.serve(Udp::open(side)?, is_sender),
            (_, Wire::WebSocket) => self.serve(Tungstenite::open(side)?, is_sender),
            (Library::Native, _) => self.serve(Native::open(self.wire, self.task.len(), side)?, is_sender),
            (Library::NativeBuffered, _) => self.serve(Buffered::open(self.wire, self.task.len(), side)?, is_sender),
        }
    }

    /// Takes part in slices until there are no more.
    fn serve(&self, mut link: impl Link, is_sender: bool) -> Result<()> {
        for number in &self.slices {
            let (began, busy) = (Instant::now(), thread_cpu());
            let messages = match (self.task, is_sender) {
                (Task::Stream(len), true) => self.send_stream(&mut link, number, len)?,
                (Task::Stream(_), false) => self.recv_stream(&mut link, number)?,
                (_, true) => self.ask(&mut link, number)?,
                (_, false) => self.answer(&mut link, number)?,
            };
            let (ended, cpu) = (Instant::now(), thread_cpu() - busy);
            let _ = self.reporter.send(Ok(Report { began, ended, messages, cpu }));
        }
        Ok(())
    }

    fn send_stream(&self, link: &mut impl Link, number: u8, len: usize) -> Result<u64> {
        // The clock is read once for some 8 KiB.
        let stride = (8192 / len).clamp(1, 64);
        let (mut message, until) = (vec![0; len], Instant::now() + SLICE);
        while Instant::now() < until {
            for _ in 0..stride {
                link.send(&message)?;
            }
        }
        message[0] = number;
        self.announce_end(link, number, &message)?;
        Ok(0)
    }

    fn recv_stream(&self, link: &mut impl Link, number: u8) -> Result<u64> {
        let mut messages = 0;
        link.recv(|message| {
            match message[0] {
                0 => messages += 1,
                end if end == number => return ControlFlow::Break(()),
                // Announces the end of an earlier slice again.
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        self.acknowledged.store(number, Ordering::Release);
        Ok(messages)
    }

    /// Sends the last message of a slice, until it has arrived.
    fn announce_end(&self, link: &mut impl Link, number: u8, message: &[u8]) -> Result<()> {
        link.send(message)?;
        link.flush()?;
        let mut sent = Instant::now();
        while self.wire == Wire::Udp && self.acknowledged.load(Ordering::Acquire) != number {
            if sent.elapsed() > AGAIN {
                link.send(message)?;
                link.flush()?;
                sent = Instant::now();
            }
        }
        Ok(())
    }

    fn ask(&self, link: &mut impl Link, number: u8) -> Result<u64> {
        let (mut messages, until) = (0, Instant::now() + SLICE);
        while Instant::now() < until {
            for _ in 0..4 {
                link.send(&[0])?;
                link.recv(|_| ControlFlow::Break(()))?;
            }
            messages += 4;
        }
        if self.task == Task::RoundTrip {
            self.announce_end(link, number, &[number])?;
        }
        Ok(messages)
    }

    fn answer(&self, link: &mut impl Link, number: u8) -> Result<u64> {
        loop {
            let mut first = 0;
            link.recv(|message| {
                first = message[0];
                ControlFlow::Break(())
            })?;
            match first {
                0 => link.send(&[0])?,
                end if end == number => break,
                _ => {}
            }
        }
        self.acknowledged.store(number, Ordering::Release);
        Ok(0)
    }
}

/// The end of a connection. If a thread has both ends, it sends by one and receives by the other.
pub(crate) trait Link {
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Passes messages to `look` as they arrive, until it breaks.
    fn recv(&mut self, look: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()>;

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
