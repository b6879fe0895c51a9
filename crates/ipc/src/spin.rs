//! How long an adaptive end spins before it sleeps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Flags};

use crate::sync::spin_loop;

/// Polls `is_ready` for a time. False if the time is over.
pub(crate) fn spin_for(time: Duration, mut is_ready: impl FnMut() -> bool) -> bool {
    /// Polls between two clock readings. One reading costs as much as several polls.
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

/// The time for which an adaptive end spins before it sleeps: about the cost of a wake-up, measured
/// once per process. Zero on one core, where nothing can happen while this thread spins.
pub(crate) fn time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| match thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => measure_wake().clamp(LEAST, MOST),
        _ => Duration::ZERO,
    })
}

/// Bounds of the measurement, which is unreliable on a busy machine or one in a deep idle state.
pub(crate) const LEAST: Duration = Duration::from_micros(5);
pub(crate) const MOST: Duration = Duration::from_micros(50);

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
    let Ok(echo) = thread::Builder::new().name("estafette-wake".into()).spawn(echo) else { return LEAST };
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
    let _ = futex::wake(word, Flags::PRIVATE, 1);
}

fn sleep_while(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) == value {
        let _ = futex::wait(word, Flags::PRIVATE, value, None);
    }
}
