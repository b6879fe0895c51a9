//! Waits that are shorter than the millisecond of tokio's timers.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer of the kernel, with its resolution.
pub(super) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// Must be called on the thread of the connections.
    ///
    /// # Errors
    ///
    /// If file descriptors are exhausted.
    pub(super) fn new() -> Result<Timer> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        let timer = timer.context("cannot make a timer")?;
        // The replacement is unsafe, for types whose descriptor may change. That of an `OwnedFd` cannot.
        #[allow(deprecated, reason = "no unsafe code for a timer")]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE).context("cannot wait for a timer")?;
        Ok(Timer(timer))
    }

    /// Waits. Cancel-safe: the next wait has its whole time.
    pub(super) async fn sleep(&self, time: Duration) {
        // A time of zero would switch the timer off.
        let time = time.max(Duration::from_nanos(1));
        let at = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: zero, it_value: at };
        // It also forgets that the timer has expired. Fails only for a time that the kernel cannot represent.
        if timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once).is_err() {
            return tokio::time::sleep(time).await;
        }
        loop {
            // Fails only while the runtime ends, which drops this task.
            let Ok(mut ready) = self.0.readable().await else { return };
            match ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?)) {
                Ok(_) => return,
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_wait_has_its_whole_time_after_one_that_was_dropped() {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(waits());
    }

    async fn waits() {
        let timer = Timer::new().unwrap();
        let short = Duration::from_micros(100);
        timer.sleep(short).await;
        // On a busy machine it may have expired at the first look.
        let _ = timer.sleep(short).now_or_never();
        // Now it expires, and nobody waits for it.
        std::thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        timer.sleep(Duration::from_millis(5)).await;
        assert!(start.elapsed() >= Duration::from_millis(5), "{:?}", start.elapsed());
    }
}
