//! The side of a link's measurement that listens: it sends packets back, and counts what arrives.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::loss::MAX_PACKETS;
use super::packets::{self, LONG_PACKET, PacketKind};
use super::wire::{COMMAND_TIMEOUT, CONNECT_TIMEOUT, Command, Purpose, Reply, read_command, read_greeting};

/// The longest time that a responder serves.
const MAX_TIME: Duration = Duration::from_secs(90);
/// The longest time between two commands. Round trips are measured in it.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// How often a thread that waits for packets or a connection looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// The interval at which the first byte of data is awaited.
const TICK: Duration = Duration::from_millis(1);
/// The length of a read in bytes.
const READ_BYTES: usize = 256 << 10;

/// Where a [`Responder`] listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The TCP port.
    pub tcp: u16,
    /// The UDP port.
    pub udp: u16,
    /// The key of this responder. Connections and packets without it are ignored.
    pub key: u64,
}

/// Serves one measurement of a link.
#[derive(Debug)]
pub struct Responder {
    listener: TcpListener,
    packets: UdpSocket,
    key: u64,
    stopper: Stopper,
}

/// Ends the measurement of a [`Responder`] from another thread. Clones belong to the same
/// responder.
#[derive(Clone, Debug, Default)]
pub struct Stopper(Arc<Stop>);

#[derive(Debug, Default)]
struct Stop {
    /// Whether the responder is to end.
    is_requested: Mutex<bool>,
    requested: Condvar,
    /// The connection on which it waits for commands.
    control: Mutex<Option<TcpStream>>,
}

impl Stopper {
    /// Ends the measurement. Does not wait until the responder has returned.
    pub fn stop(&self) {
        *self.lock() = true;
        self.0.requested.notify_all();
        if let Some(control) = &*self.0.control.lock().unwrap_or_else(PoisonError::into_inner) {
            // An error means that the other side has closed.
            let _ = control.shutdown(Shutdown::Both);
        }
    }

    fn is_stopped(&self) -> bool {
        *self.lock()
    }

    /// Notes the connection that [`Stopper::stop`] closes.
    fn note_control(&self, control: &TcpStream) -> Result<()> {
        *self.0.control.lock().unwrap_or_else(PoisonError::into_inner) = Some(control.try_clone()?);
        self.check()
    }

    /// Sleeps.
    ///
    /// # Errors
    /// When the measurement is to end.
    fn sleep(&self, length: Duration) -> Result<()> {
        let woken = self.0.requested.wait_timeout_while(self.lock(), length, |is_requested| !*is_requested);
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.check()
    }

    fn check(&self) -> Result<()> {
        if self.is_stopped() { bail!("the measurement of the link was stopped") } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.is_requested.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Responder {
    /// Listens at any free ports of an address of this host, with a new key.
    ///
    /// # Errors
    /// When the address is not one of this host.
    pub fn bind(address: IpAddr) -> Result<Responder> {
        let listener = TcpListener::bind((address, 0)).with_context(|| format!("listening at {address}"))?;
        listener.set_nonblocking(true)?;
        let packets = UdpSocket::bind((address, 0)).with_context(|| format!("binding a UDP socket to {address}"))?;
        packets.set_read_timeout(Some(LOOK))?;
        Ok(Responder { listener, packets, key: fastrand::u64(..), stopper: Stopper::default() })
    }

    /// The ports and the key, for the other host's [`measure`](super::measure).
    ///
    /// # Errors
    /// When the system does not say.
    pub fn ports(&self) -> Result<Ports> {
        Ok(Ports { tcp: self.listener.local_addr()?.port(), udp: self.packets.local_addr()?.port(), key: self.key })
    }

    /// What ends [`Responder::serve`].
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves one measurement. Blocks until the other side has closed its control connection or the
    /// measurement is stopped, at most for 90 s; for 20 s if nobody connects.
    ///
    /// # Errors
    /// When nobody connects, the measurement is stopped, or the other side ends in the middle or
    /// asks for what is not allowed.
    pub fn serve(&self) -> Result<()> {
        let (arrived, ends) = (Mutex::new(vec![false; MAX_PACKETS]), AtomicBool::new(false));
        thread::scope(|scope| {
            let answer = || self.answer_packets(&arrived, &ends);
            thread::Builder::new().spawn_scoped(scope, answer).context("starting a thread")?;
            let served = self.serve_commands(&arrived);
            ends.store(true, Ordering::Relaxed);
            served
        })
    }

    fn serve_commands(&self, arrived: &Mutex<Vec<bool>>) -> Result<()> {
        let end = Instant::now() + MAX_TIME;
        let control = self.accept(Purpose::Control)?;
        self.stopper.note_control(&control)?;
        loop {
            self.stopper.check()?;
            let left = end.saturating_duration_since(Instant::now()).min(MAX_PAUSE);
            if left.is_zero() {
                bail!("the measurement of the link took longer than {MAX_TIME:?}");
            }
            control.set_read_timeout(Some(left))?;
            let Some(frame) = read_command(&control).context("waiting for the other host")? else { return Ok(()) };
            let reply = match Command::decode(frame) {
                Some(Command::CountBulk { connections, length }) => self.count_bulk(connections, length)?,
                Some(Command::CountPackets) => {
                    let arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
                    Reply { count: arrived.iter().filter(|arrived| **arrived).count() as u64, ns: 0 }
                }
                None => bail!("the other host sent an unknown command for the link"),
            };
            reply.send(&control).context("replying to the other host")?;
        }
    }

    /// Accepts the next connection that has the key and this purpose.
    fn accept(&self, purpose: Purpose) -> Result<TcpStream> {
        let end = Instant::now() + COMMAND_TIMEOUT + CONNECT_TIMEOUT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("the other host did not connect to measure the link");
            }
            self.stopper.check()?;
            let look = left.min(LOOK);
            let timeout = Timespec { tv_sec: look.as_secs() as i64, tv_nsec: i64::from(look.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for the other host"),
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => continue,
                Err(error) => return Err(error).context("accepting a connection of the other host"),
            };
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(CONNECT_TIMEOUT))?;
            stream.set_read_timeout(Some(CONNECT_TIMEOUT.min(left)))?;
            // A stranger's connection is closed, whatever it sends.
            if let Ok(Some(greeted)) = read_greeting(&stream, self.key)
                && greeted == purpose
            {
                return Ok(stream);
            }
        }
    }

    /// Counts what arrives on `connections` connections in the second half of `length`.
    fn count_bulk(&self, connections: u32, length: Duration) -> Result<Reply> {
        let streams = (0..connections).map(|_| self.accept(Purpose::Bulk)).collect::<Result<Vec<_>>>()?;
        let total = AtomicU64::new(0);
        thread::scope(|scope| {
            let mut started = Ok(());
            for stream in &streams {
                let thread = thread::Builder::new().spawn_scoped(scope, || read_until_closed(stream, &total));
                started = started.and(thread.map(drop));
            }
            let counted =
                started.context("starting a thread").and_then(|()| second_half(&self.stopper, &total, length));
            // Ends the threads. An error means that the other side has closed.
            streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
            counted
        })
    }

    /// Sends packets back or counts them, until `ends` is set.
    fn answer_packets(&self, arrived: &Mutex<Vec<bool>>, ends: &AtomicBool) {
        let mut packet = [0; LONG_PACKET];
        while !ends.load(Ordering::Relaxed) {
            // Errors are time-outs, or reports that an earlier reply was not delivered.
            let Ok((len, from)) = self.packets.recv_from(&mut packet) else { continue };
            match packets::read(&packet[..len], self.key) {
                // If it cannot be sent, it is a lost round trip.
                Some((PacketKind::Echo, _)) => drop(self.packets.send_to(&packet[..len], from)),
                Some((PacketKind::Count, sequence)) => {
                    let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(arrived) = usize::try_from(sequence).ok().and_then(|at| arrived.get_mut(at)) {
                        *arrived = true;
                    }
                }
                None => {}
            }
        }
    }
}

/// Waits for the first byte, then for `length`. Returns what arrived in the second half of that
/// time.
fn second_half(stopper: &Stopper, total: &AtomicU64, length: Duration) -> Result<Reply> {
    let end = Instant::now() + CONNECT_TIMEOUT;
    while total.load(Ordering::Relaxed) == 0 {
        if Instant::now() > end {
            bail!("the other host sent no data");
        }
        stopper.sleep(TICK)?;
    }
    stopper.sleep(length / 2)?;
    let (began, before) = (Instant::now(), total.load(Ordering::Relaxed));
    stopper.sleep(length / 2)?;
    let (ended, after) = (Instant::now(), total.load(Ordering::Relaxed));
    Ok(Reply { count: after - before, ns: (ended - began).as_nanos() as u64 })
}

/// Reads data until the connection is closed, and adds up its length.
fn read_until_closed(mut stream: &TcpStream, total: &AtomicU64) {
    let mut data = vec![0; READ_BYTES];
    loop {
        match stream.read(&mut data) {
            Ok(0) => return,
            Ok(len) => {
                total.fetch_add(len as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
