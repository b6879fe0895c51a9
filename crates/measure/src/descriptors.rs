//! How many files a process may have open: what holds many connections needs more than a shell usually grants.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::case::{Case, Pattern, Role};

/// Open in every child: what it inherits, its coordinator, a library's own.
const OTHERS: u64 = 64;
/// For each connection, at the most: a mechanism may have one descriptor to send by and another to receive from.
const EACH: u64 = 2;

/// How many descriptors the child of a role needs; 0 where nobody has to ask.
fn needed(case: &Case, role: Role) -> u64 {
    match (case.pattern, role) {
        (Pattern::Connections, _) | (Pattern::FanIn, Role::Consumer(_)) => OTHERS + EACH * case.producers as u64,
        _ => 0,
    }
}

/// Whether this user's processes may have as many descriptors as the case takes.
///
/// # Errors
/// What to do where they may not.
pub(crate) fn suffice(case: &Case) -> Result<(), String> {
    let needed = needed(case, Role::Consumer(0));
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < needed => Err(format!(
            "{} connections take {needed} descriptors, and a process may have {most} here: use fewer --producers, or raise the \
             hard limit (`ulimit -Hn`, or LimitNOFILE= of systemd)",
            case.producers
        )),
        _ => Ok(()),
    }
}

/// Lets this child have what its role needs, up to the hard limit. Others keep the limit that they were given.
pub(crate) fn raise(case: &Case, role: Role) {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = needed(case, role);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |most| most.min(needed)));
        // What it comes to is said by whoever opens the one too many.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
