//! POSIX real-time signals: sigqueue sends one with a word, sigwaitinfo waits for it. They are queued in order, and every one
//! arrives.
//!
//! Nothing waits for room in the queue: the sender that finds it full yields its core and tries again. How many may be
//! queued is counted by user, over all its processes, against the limit of the process they are sent to; so the receiver
//! lowers its own limit to what the case asks for, and leaves the user's other processes theirs.

use std::ffi::c_int;
use std::fs;
use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::ptr;

use anyhow::{Context, Result};
use estafette_measure::case::{Case, PayloadKind, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use libc::{pid_t, siginfo_t, sigset_t, sigval};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[allow(unsafe_code)]
unsafe extern "C" {
    /// Of POSIX; the crate `libc` has it for other systems only.
    fn sigqueue(process: pid_t, signal: c_int, value: sigval) -> c_int;
}

pub(super) struct Signal;

impl Mechanism for Signal {
    fn spec(&self) -> Spec {
        Spec::new("process/signal")
            .implementation(
                "a real-time signal with a word, sigqueue and sigwaitinfo; a sender that finds it full polls",
            )
            .payloads(&[PayloadKind::None, PayloadKind::U64])
            .tier(Tier::Suite)
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        match most(case) {
            0 => Err(String::from("this user may have no signal queued: raise it with `ulimit -i`")),
            _ => Ok(()),
        }
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(most(case))
    }
}

/// How many of the case's signals may be queued.
fn most(case: &Case) -> u64 {
    (case.capacity.max(1) as u64).min(getrlimit(Resource::Sigpending).maximum.unwrap_or(u64::MAX))
}

impl Transport<Raw> for Signal {
    type Tx = Queueing;
    type Rx = Waiting;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Queueing, Waiting>> {
        let receives = case.pattern.both_ways() || matches!(role, Role::Consumer(_));
        let (mine, theirs) = match role {
            Role::Consumer(_) => ("consumer", "producer"),
            _ => ("producer", "consumer"),
        };
        // Whoever knows the process may send, so it is ready to receive by then.
        let rx = if receives { Some(Waiting::open(most(case))?) } else { None };
        if receives {
            rendezvous.publish(mine, &std::process::id().to_string())?;
        }
        let sends = case.pattern.both_ways() || matches!(role, Role::Producer(_));
        let tx = match sends {
            true => Some(Queueing { process: rendezvous.request(theirs)?.parse().context("the number of a process")? }),
            false => None,
        };
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// The sending end.
pub(super) struct Queueing {
    process: pid_t,
}

impl Queueing {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn send_word(&self, word: u64) -> io::Result<()> {
        let value = sigval { sival_ptr: ptr::without_provenance_mut(word as usize) };
        loop {
            // SAFETY: it takes three numbers; the receiver reads the pointer as one.
            if unsafe { sigqueue(self.process, libc::SIGRTMIN(), value) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // The queue is full, and nobody tells when it is not.
                Some(libc::EAGAIN) => std::thread::yield_now(),
                Some(libc::ESRCH) => return Err(ErrorKind::BrokenPipe.into()),
                _ => return Err(error),
            }
        }
    }
}

impl Tx for Queueing {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        // A signal has a word whether it is asked to carry one or not, so it says its number either way.
        ready(self.send_word(source.word()))
    }
}

/// The receiving end: of the thread that opened it, in a process with no other.
pub(super) struct Waiting {
    signals: sigset_t,
}

impl Waiting {
    /// Blocks the signal, so that it stays queued until it is waited for, and lets so many be.
    #[allow(unsafe_code)]
    fn open(most: u64) -> Result<Waiting> {
        let limit = getrlimit(Resource::Sigpending);
        // Those that the user's other processes have queued count, too.
        let current = (queued() + most).min(limit.maximum.unwrap_or(u64::MAX));
        setrlimit(Resource::Sigpending, Rlimit { current: Some(current), ..limit })
            .context("limiting the signals that may be queued")?;
        let mut signals = MaybeUninit::uninit();
        // SAFETY: the first call initialises the set that the others change and read; the signal's number is valid.
        let (signals, blocked) = unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            libc::sigaddset(signals.as_mut_ptr(), libc::SIGRTMIN());
            let signals = signals.assume_init();
            (signals, libc::pthread_sigmask(libc::SIG_BLOCK, &signals, ptr::null_mut()))
        };
        match blocked {
            0 => Ok(Waiting { signals }),
            code => Err(io::Error::from_raw_os_error(code)).context("blocking a real-time signal"),
        }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn receive(&self) -> io::Result<u64> {
        let mut info = MaybeUninit::<siginfo_t>::uninit();
        loop {
            // SAFETY: the set is initialised, and there is room for what is written.
            if unsafe { libc::sigwaitinfo(&self.signals, info.as_mut_ptr()) } >= 0 {
                // SAFETY: it was written; a signal that was queued has a value.
                return Ok(unsafe { info.assume_init().si_value() }.sival_ptr.addr() as u64);
            }
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// How many signals of all of this user's processes are queued.
fn queued() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("SigQ:")?.trim().split_once('/')?.0.parse().ok());
    count.unwrap_or(0)
}

impl Rx for Waiting {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive().map(|word| verifier.word(word)))
    }
}
