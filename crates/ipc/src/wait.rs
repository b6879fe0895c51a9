//! How an end waits: by looking again and again, by sleeping, or first the one and then the other.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::{Doorbell, spin_loop};

/// How an end waits for the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitMode {
    /// By looking again and again. Lowest latency; each waiting end takes a whole core.
    Spin,
    /// By looking for as long as a wake-up costs, then by sleeping. At most twice the cost of the
    /// better choice, whatever comes; idle it costs nothing.
    #[default]
    Adaptive,
    /// By sleeping at once.
    Block,
}

impl WaitMode {
    /// Looks until something is ready. False if it is time to sleep.
    #[inline]
    pub(crate) fn spin(self, mut is_ready: impl FnMut() -> bool) -> bool {
        match self {
            Self::Spin => {
                while !is_ready() {
                    spin_loop();
                }
                true
            }
            Self::Adaptive => spin_for(spin_time(), is_ready),
            Self::Block => false,
        }
    }
}

/// Looks for so long, reading the clock now and then.
fn spin_for(time: Duration, mut is_ready: impl FnMut() -> bool) -> bool {
    /// Looks between two readings of the clock, which cost as much as some of them.
    const LOOKS: usize = 16;
    if time.is_zero() {
        return false;
    }
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_ready() {
                return true;
            }
            spin_loop();
        }
        if start.elapsed() >= time {
            return false;
        }
    }
}

/// What an adaptive end spins for before it sleeps: about what a wake-up costs, measured when the
/// first one waits. Zero where there is one core only, since nothing can happen while one spins.
pub(crate) fn spin_time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| match thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => measure_wake().clamp(LEAST_SPIN, MOST_SPIN),
        _ => Duration::ZERO,
    })
}

/// What a busy or idle-deep machine may make of the measurement, bounded by what machines have.
const LEAST_SPIN: Duration = Duration::from_micros(5);
const MOST_SPIN: Duration = Duration::from_micros(50);

/// Half the median round trip between two threads that sleep on futexes.
fn measure_wake() -> Duration {
    const ROUNDS: u32 = 9;
    let words: Arc<[AtomicU32; 2]> = Arc::default();
    let theirs = Arc::clone(&words);
    let echo = move || {
        for round in 0..ROUNDS {
            sleep_while(&theirs[0], round);
            ring(&theirs[1]);
        }
    };
    let Ok(echo) = thread::Builder::new().name("estafette-wake".into()).spawn(echo) else { return LEAST_SPIN };
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let start = Instant::now();
            ring(&words[0]);
            sleep_while(&words[1], round);
            start.elapsed() / 2
        })
        .collect();
    let _ = echo.join();
    times.sort_unstable();
    times[times.len() / 2]
}

fn ring(word: &AtomicU32) {
    word.fetch_add(1, Ordering::AcqRel);
    let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::PRIVATE, 1);
}

fn sleep_while(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) == value {
        let _ = rustix::thread::futex::wait(word, rustix::thread::futex::Flags::PRIVATE, value, None);
    }
}

/// Sleeps on a bell unless there is a reason not to, once `announce` has told others to ring it.
///
/// The ticket comes first, then the announcement, then the last look: who changes what `is_ready`
/// looks at, and then sees the announcement, rings after the ticket was taken.
pub(crate) fn sleep(
    bell: &Doorbell,
    timeout: Option<Duration>,
    announce: impl FnOnce(),
    is_ready: impl FnOnce() -> bool,
) {
    let ticket = bell.ticket();
    announce();
    if !is_ready() {
        bell.wait(ticket, timeout);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LEAST_SPIN, MOST_SPIN, WaitMode, spin_time};

    #[test]
    fn an_adaptive_end_spins_for_a_bounded_time() {
        let time = spin_time();
        assert!(time.is_zero() || (LEAST_SPIN..=MOST_SPIN).contains(&time), "{time:?}");
        assert!(!WaitMode::Adaptive.spin(|| false));
        assert!(WaitMode::Adaptive.spin(|| true) || time.is_zero());
    }

    #[test]
    fn a_blocking_end_does_not_look() {
        assert!(!WaitMode::Block.spin(|| unreachable!()));
    }

    #[test]
    fn a_spinning_end_looks_until_it_is_ready() {
        let mut looks = 0;
        assert!(WaitMode::Spin.spin(|| {
            looks += 1;
            looks == 100
        }));
    }
}
