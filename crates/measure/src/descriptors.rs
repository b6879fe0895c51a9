//! The limit on open files. A process with many connections needs more descriptors than the usual
//! soft limit.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::case::{Case, Pattern, Role};

/// Descriptors of every child besides its connections: inherited ones, the coordinator's socket,
/// those of libraries.
const OTHERS: u64 = 64;
/// The maximum number of descriptors for each connection: a mechanism may use one to send and
/// another to receive.
const EACH: u64 = 2;

/// The number of descriptors of a child that has `each` for each producer.
fn needed(case: &Case, each: u64) -> u64 {
    OTHERS + each * case.producers as u64
}

/// Checks whether the hard limit allows the descriptors that a case needs.
///
/// # Errors
/// When it does not, with what to do.
pub(crate) fn suffice(case: &Case) -> Result<(), String> {
    let needed = needed(case, 1);
    match getrlimit(Resource::Nofile).maximum {
        // In other patterns several producers may share one channel. Only the mechanism knows
        // whether they do.
        Some(most) if most < needed && case.pattern == Pattern::Connections => Err(format!(
            "{} connections need {needed} descriptors, and a process may have {most} here: use fewer --producers, or \
             raise the hard limit (`ulimit -Hn`, or LimitNOFILE= of systemd)",
            case.producers
        )),
        _ => Ok(()),
    }
}

/// Raises the soft limit of this child to what its role may need, up to the hard limit. Other roles
/// keep their limit.
pub(crate) fn raise(case: &Case, role: Role) {
    if !matches!((case.pattern, role), (Pattern::Connections, _) | (Pattern::FanIn, Role::Consumer(_))) {
        return;
    }
    let mut limit = getrlimit(Resource::Nofile);
    let needed = needed(case, EACH);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |most| most.min(needed)));
        // An error is ignored here: opening one descriptor too many reports it.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
