//! POSIX real-time signals. `sigqueue` sends one with a word, `sigwaitinfo` waits for it. They are
//! queued in order and none is lost.
//!
//! No call waits until the queue has free capacity. A sender that finds it full yields its core and
//! tries again. The kernel counts queued signals per user, over all the user's processes, and
//! checks the limit of the receiving process. So the receiver lowers its own limit to the requested
//! capacity. The limits of the user's other processes do not change.

use std::ffi::c_int;
use std::fs;
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
    /// A POSIX function that the crate `libc` declares for other systems only.
    fn sigqueue(process: pid_t, signal: c_int, value: sigval) -> c_int;
}

pub(super) struct Signal;

impl Mechanism for Signal {
    fn spec(&self) -> Spec {
        Spec::new("process/signal")
            .kernel_copies(0)
            .implementation(
                "a real-time signal with a word, sigqueue and sigwaitinfo; a sender that finds it full polls",
            )
            .payloads(&[PayloadKind::None, PayloadKind::U64])
            .tier(Tier::Suite)
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        match max_queued(case) {
            0 => Err(String::from("this user may not queue signals: raise it with `ulimit -i`")),
            _ => Ok(()),
        }
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(max_queued(case))
    }
}

/// Returns how many of the case's signals may be queued.
fn max_queued(case: &Case) -> u64 {
    (case.capacity.max(1) as u64).min(getrlimit(Resource::Sigpending).maximum.unwrap_or(u64::MAX))
}

impl Transport<Raw> for Signal {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let receives = case.pattern.is_bidirectional() || matches!(role, Role::Consumer(_));
        let (mine, theirs) = match role {
            Role::Consumer(_) => ("consumer", "producer"),
            _ => ("producer", "consumer"),
        };
        // A process that knows this process may send immediately, so the receiving end opens first.
        let rx = if receives { Some(RecvEnd::open(max_queued(case))?) } else { None };
        if receives {
            rendezvous.publish(mine, &std::process::id().to_string())?;
        }
        let sends = case.pattern.is_bidirectional() || matches!(role, Role::Producer(_));
        let tx = match sends {
            true => Some(SendEnd { process: rendezvous.request(theirs)?.parse().context("the number of a process")? }),
            false => None,
        };
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// The sending end.
pub(super) struct SendEnd {
    process: pid_t,
}

impl SendEnd {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn send_word(&self, word: u64) -> io::Result<()> {
        let value = sigval { sival_ptr: ptr::without_provenance_mut(word as usize) };
        loop {
            // SAFETY: the call takes three numbers. The receiver reads the pointer as a number.
            if unsafe { sigqueue(self.process, libc::SIGRTMIN(), value) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // The queue is full, and the kernel does not report when that changes.
                Some(libc::EAGAIN) => std::thread::yield_now(),
                Some(libc::ESRCH) => return Err(ErrorKind::BrokenPipe.into()),
                _ => return Err(error),
            }
        }
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        // A signal always carries a word, so it carries the message's number even if the case needs
        // none.
        self.send_word(source.word())
    }
}

/// The receiving end. Only the thread that opened it uses it, in a process with no other thread.
pub(super) struct RecvEnd {
    signals: sigset_t,
}

impl RecvEnd {
    /// Blocks the signal, so that it stays queued until `sigwaitinfo`, and limits the queue to
    /// `max_queued` signals.
    #[allow(unsafe_code)]
    fn open(max_queued: u64) -> Result<RecvEnd> {
        let limit = getrlimit(Resource::Sigpending);
        // Signals queued for the user's other processes count, too.
        let current = (queued() + max_queued).min(limit.maximum.unwrap_or(u64::MAX));
        setrlimit(Resource::Sigpending, Rlimit { current: Some(current), ..limit })
            .context("limiting the signals that may be queued")?;
        let mut signals = MaybeUninit::uninit();
        // SAFETY: the first call initialises the set that the other calls change and read. The
        // signal's number is valid.
        let (signals, blocked) = unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            libc::sigaddset(signals.as_mut_ptr(), libc::SIGRTMIN());
            let signals = signals.assume_init();
            (signals, libc::pthread_sigmask(libc::SIG_BLOCK, &signals, ptr::null_mut()))
        };
        match blocked {
            0 => Ok(RecvEnd { signals }),
            code => Err(io::Error::from_raw_os_error(code)).context("blocking a real-time signal"),
        }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn recv_word(&self) -> io::Result<u64> {
        let mut info = MaybeUninit::<siginfo_t>::uninit();
        loop {
            // SAFETY: the set is initialised, and `info` is large enough for the result.
            if unsafe { libc::sigwaitinfo(&self.signals, info.as_mut_ptr()) } >= 0 {
                // SAFETY: the call has initialised `info`. A queued signal has a value.
                return Ok(unsafe { info.assume_init().si_value() }.sival_ptr.addr() as u64);
            }
            let error = io::Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Returns how many signals of all of this user's processes are queued.
fn queued() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("SigQ:")?.trim().split_once('/')?.0.parse().ok());
    count.unwrap_or(0)
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_word().map(|word| verifier.word(word))
    }
}
