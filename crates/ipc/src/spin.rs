//! For how long an end that waits adaptively looks before it sleeps.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Flags};

use crate::sync::spin_loop;

/// Looks for so long, reading the clock now and then.
pub(crate) fn spin_for(time: Duration, mut is_ready: impl FnMut() -> bool) -> bool {
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
pub(crate) fn time() -> Duration {
    static TIME: OnceLock<Duration> = OnceLock::new();
    *TIME.get_or_init(|| match thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => measure_wake().clamp(LEAST, MOST),
        _ => Duration::ZERO,
    })
}

/// What a busy or idle-deep machine may make of the measurement, bounded by what machines have.
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
