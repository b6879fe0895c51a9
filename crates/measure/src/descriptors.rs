//! How many files a process may have open: what holds many connections needs more than a shell usually grants.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::case::{Case, Pattern, Role};

/// Open in every child: what it inherits, its coordinator, a library's own.
const OTHERS: u64 = 64;
/// For each connection, where there may be as many: a mechanism may have one descriptor to send by and another to receive from.
const EACH: u64 = 2;

/// How many descriptors a child needs that has so many for each producer.
fn needed(case: &Case, each: u64) -> u64 {
    OTHERS + each * case.producers as u64
}

/// Whether this user's processes may have as many descriptors as the case takes.
///
/// # Errors
/// What to do where they may not.
pub(crate) fn suffice(case: &Case) -> Result<(), String> {
    let needed = needed(case, 1);
    match getrlimit(Resource::Nofile).maximum {
        // Several producers may share one channel: whether they do their mechanism knows.
        Some(most) if most < needed && case.pattern == Pattern::Connections => Err(format!(
            "{} connections take {needed} descriptors, and a process may have {most} here: use fewer --producers, or raise the \
             hard limit (`ulimit -Hn`, or LimitNOFILE= of systemd)",
            case.producers
        )),
        _ => Ok(()),
    }
}

/// Lets this child have what its role may need, up to the hard limit. Others keep the limit that they were given.
pub(crate) fn raise(case: &Case, role: Role) {
    if !matches!((case.pattern, role), (Pattern::Connections, _) | (Pattern::FanIn, Role::Consumer(_))) {
        return;
    }
    let mut limit = getrlimit(Resource::Nofile);
    let needed = needed(case, EACH);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |most| most.min(needed)));
        // What it comes to is said by whoever opens the one too many.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
