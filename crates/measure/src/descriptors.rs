//! The limit on open files. A process with many connections needs more descriptors than the usual
//! soft limit.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors of every child besides its connections: inherited ones, the coordinator's socket,
/// those of libraries.
const OTHERS: u64 = 64;
/// The maximum number of descriptors for each connection: a mechanism may use one to send and
/// another to receive.
const EACH: u64 = 2;

/// The number of descriptors of a child that has `each` for each of its connections.
fn needed(connections: usize, each: u64) -> u64 {
    OTHERS + each * connections as u64
}

/// Checks whether the hard limit allows the descriptors that so many connections need.
///
/// # Errors
/// When it does not, with what to do.
pub(crate) fn suffice(connections: usize) -> Result<(), String> {
    let needed = needed(connections, 1);
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < needed => Err(format!(
            "{connections} connections need {needed} descriptors, and a process may have {most} here: use fewer \
             --producers, or raise the hard limit (`ulimit -Hn`, or LimitNOFILE= of systemd)"
        )),
        _ => Ok(()),
    }
}

/// Raises the soft limit of this process to what so many connections may need, up to the hard
/// limit.
pub(crate) fn raise(connections: usize) {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = needed(connections, EACH);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |most| most.min(needed)));
        // An error is ignored here: opening one descriptor too many reports it.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
