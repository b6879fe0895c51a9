//! The source that sends at intervals.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::outlet::{Next, Outlet, Waited};

/// Sends the number of each tick, from 0, in decimal digits. Late ticks are sent at once.
pub(super) fn run(every: Duration, count: Option<u64>, outlet: &mut Outlet) -> Result<()> {
    let mut due = Instant::now();
    for tick in 0..count.unwrap_or(u64::MAX) {
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if outlet.stop.wait(None, Some(left))? == Waited::Stopped {
                return Ok(());
            }
        }
        if outlet.send(tick.to_string().as_bytes())? == Next::Stop {
            return Ok(());
        }
        due += every;
    }
    Ok(())
}
