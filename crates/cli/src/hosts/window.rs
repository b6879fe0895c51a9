//! The windows of a run between two hosts: each has to have many round trips, or its figures depend
//! on where in a round trip it begins and ends.

use std::time::Duration;

use anyhow::{Result, bail};
use estafette_measure::case::Pattern;
use estafette_measure::plan::Plan;
use estafette_measure::units;
use estafette_measure::window::Window;

/// The least number of round trips within a window.
const ROUND_TRIPS: u32 = 20;
/// The least number of round trips within a warm-up. The slow start of TCP takes about as many to
/// fill a link of 1 Gbit/s and 40 ms.
const WARMUP_ROUND_TRIPS: u32 = 10;
/// The shortest window that a profile has between hosts. Some libraries wait for delayed
/// acknowledgements, some 40 ms each, in every round trip.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest round trip with which a run makes sense. Its windows take 20 s.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);

/// Lengthens the windows of a plan for this round trip to the other host. Returns what to tell the
/// user. `is_given` says whether the user chose the window.
///
/// # Errors
/// If the window that the user chose is too short, or the run would take too long.
pub(super) fn fit(plan: &mut Plan, is_given: bool, round_trip: Duration) -> Result<Option<String>> {
    let shown = units::duration(round_trip.as_nanos() as f64);
    if round_trip > MAX_ROUND_TRIP {
        bail!("a round trip to the other host takes {shown}: that is too long to measure; the maximum is 1 s");
    }
    match plan.window {
        Window::Time { warmup_ns, measure_ns } => {
            let least_ns = whole_ms(round_trip * ROUND_TRIPS);
            if is_given && measure_ns < least_ns {
                bail!(
                    "a round trip to the other host takes {shown}, and a window needs {ROUND_TRIPS} of them: choose a longer --window, at least {}ms, or leave it out",
                    least_ns / 1_000_000
                );
            }
            let warmup_ns = warmup_ns.max(whole_ms(round_trip * WARMUP_ROUND_TRIPS));
            let shortest_ns = if is_given { measure_ns } else { whole_ms(SHORTEST) };
            let lengthened_ns = measure_ns.max(least_ns).max(shortest_ns);
            plan.window = Window::Time { warmup_ns, measure_ns: lengthened_ns };
            Ok((measure_ns < lengthened_ns).then(|| {
                let ms = lengthened_ns / 1_000_000;
                if lengthened_ns == least_ns {
                    format!(
                        "a round trip to the other host takes {shown}: each window is lengthened to {ms} ms, for {ROUND_TRIPS} of them"
                    )
                } else {
                    format!(
                        "each window is lengthened to {ms} ms, because some libraries wait for delayed acknowledgements; \
                         --window chooses another"
                    )
                }
            }))
        }
        Window::Count { warmup, messages } => {
            let has_round_trips = plan.entrants.iter().any(|entrant| entrant.case.pattern == Pattern::PingPong);
            let seconds = (warmup + messages) as f64 * round_trip.as_secs_f64();
            if has_round_trips && seconds > plan.count_timeout.as_secs_f64() {
                bail!(
                    "{} round trips of {shown} take {}: choose another --profile, or give a --window",
                    warmup + messages,
                    units::duration(seconds * 1e9)
                );
            }
            Ok(None)
        }
    }
}

/// A time in nanoseconds, rounded up to whole milliseconds.
fn whole_ms(time: Duration) -> u64 {
    (time.as_nanos() as u64).div_ceil(1_000_000) * 1_000_000
}

#[cfg(test)]
mod tests {
    use estafette_measure::case::Case;
    use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, TIMEOUT};

    use super::*;

    fn plan(window: Window) -> Plan {
        let case = r#"{"mechanism": "network/tcp", "cell": {"scope": "network", "pattern": "ping-pong", "payload": "64B",
            "producers": 1, "capacity": 64, "runtime": "thread", "wait": "block", "place": "other-host"}}"#;
        let case: Case = serde_json::from_str(case).unwrap();
        let entrant = Entrant { case, control: false, effective_capacity: None, calls: None };
        Plan {
            window,
            rounds: 1,
            precision: None,
            seed: 1,
            entrants: vec![entrant],
            refusals: Vec::new(),
            cpus: vec![0],
            slice: None,
            timeout: TIMEOUT,
            count_timeout: COUNT_TIMEOUT,
            other_host: None,
        }
    }

    const SHORT: Window = Window::Time { warmup_ns: 15_000_000, measure_ns: 30_000_000 };
    const LONG_TRIP: Duration = Duration::from_millis(40);

    #[test]
    fn a_window_has_many_round_trips() {
        let mut near = plan(SHORT);
        let note = fit(&mut near, false, Duration::from_micros(100)).unwrap().unwrap();
        assert_eq!(near.window, Window::Time { warmup_ns: 15_000_000, measure_ns: 200_000_000 });
        assert!(note.contains("200 ms, because some libraries wait"), "{note}");
        let mut far = plan(SHORT);
        let note = fit(&mut far, false, LONG_TRIP).unwrap().unwrap();
        assert_eq!(far.window, Window::Time { warmup_ns: 400_000_000, measure_ns: 800_000_000 });
        assert!(note.contains("40.0 ms") && note.contains("800 ms"), "{note}");
    }

    #[test]
    fn a_window_that_the_user_chose_is_not_changed_but_may_be_too_short() {
        let error = fit(&mut plan(SHORT), true, LONG_TRIP).unwrap_err().to_string();
        assert!(error.contains("at least 800ms"), "{error}");
        let mut enough = plan(Window::Time { warmup_ns: 100_000_000, measure_ns: 2_000_000_000 });
        assert_eq!(fit(&mut enough, true, LONG_TRIP).unwrap(), None);
        assert_eq!(fit(&mut plan(SHORT), true, Duration::from_micros(100)).unwrap(), None);
        // The warm-up is not the user's.
        assert_eq!(enough.window, Window::Time { warmup_ns: 400_000_000, measure_ns: 2_000_000_000 });
    }

    #[test]
    fn a_run_that_would_not_end_is_refused() {
        let mut counted = plan(Window::Count { warmup: 65_536, messages: 1 << 20 });
        assert_eq!(fit(&mut counted, false, Duration::from_micros(100)).unwrap(), None);
        let error = fit(&mut counted, false, LONG_TRIP).unwrap_err().to_string();
        assert!(error.contains("1114112 round trips") && error.contains("--window"), "{error}");
        let error = fit(&mut plan(SHORT), false, Duration::from_secs(3)).unwrap_err().to_string();
        assert!(error.contains("too long"), "{error}");
    }
}
