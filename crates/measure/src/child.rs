//! The life of a child process: receive the assignment, play the role, report, wait to be let go.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::driver::Ctx;
use crate::entry::Registry;
use crate::executor::panicked;
use crate::pauses::Pauses;
use crate::protocol::{self, Assignment, Report, ToChild, ToCoordinator};
use crate::rendezvous::Rendezvous;

/// The argument that makes the command a child.
pub const ARGUMENT: &str = "__child";

/// Serves as a child of a coordinator whose socket is descriptor 0, and ends the process.
pub fn serve(registry: &Registry) -> ! {
    let status = match connect() {
        Ok(socket) => i32::from(!serve_on(registry, socket)),
        Err(error) => {
            eprintln!("estafette: `{ARGUMENT}` is for the command's own use: {error:#}");
            2
        }
    };
    // Not a return: another party's thread may be stuck in its mechanism.
    std::process::exit(status)
}

fn connect() -> Result<OwnedFd> {
    // A coordinator that is killed takes its children along. One that died before this line closed the socket.
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the coordinator")?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let kind = rustix::net::sockopt::socket_type(&socket).context("descriptor 0 is not a socket")?;
    if kind != rustix::net::SocketType::SEQPACKET {
        bail!("descriptor 0 is not a SOCK_SEQPACKET socket");
    }
    Ok(socket)
}

/// Whether the role was played to its end and reported.
fn serve_on(registry: &Registry, socket: OwnedFd) -> bool {
    let (assignment, descriptors) = loop {
        match protocol::receive(&socket) {
            Ok(Some((ToChild::Assignment(assignment), descriptors))) => break (assignment, descriptors),
            Ok(Some((ToChild::EffectiveCapacity(case), _))) => {
                let tried = catch_unwind(AssertUnwindSafe(|| registry.get(&case.mechanism)?.effective_capacity(&case)));
                let effective_capacity = tried.unwrap_or_default();
                if protocol::send(&socket, &ToCoordinator::EffectiveCapacity { effective_capacity }, &[]).is_err() {
                    return false;
                }
            }
            Ok(None) => return false,
            Ok(Some((other, _))) => {
                return fail(&socket, &format!("expected an assignment, the coordinator said {other:?}"));
            }
            Err(error) => return fail(&socket, &format!("{error:#}")),
        }
    };
    let Ok(copy) = socket.try_clone() else { return fail(&socket, "no descriptor left") };
    let played = catch_unwind(AssertUnwindSafe(|| play(registry, *assignment, descriptors, copy)));
    match played.unwrap_or_else(|panic| Err(panicked(&*panic))) {
        Ok((report, _still_open)) => {
            if let Err(error) = protocol::send(&socket, &ToCoordinator::Report(report), &[]) {
                return fail(&socket, &format!("reporting: {error:#}"));
            }
            // What this child opened stays open until all have reported. The answer is `done`, or nothing where the
            // coordinator has gone: either way the work is over.
            loop {
                match protocol::receive::<ToChild>(&socket) {
                    // To a broker that saw the end by itself.
                    Ok(Some((ToChild::Over {}, _))) => {}
                    answer => break matches!(answer, Ok(Some((ToChild::Done {}, _)))),
                }
            }
        }
        Err(error) => fail(&socket, &format!("{error:#}")),
    }
}

fn play(
    registry: &Registry,
    assignment: Assignment,
    descriptors: Vec<OwnedFd>,
    socket: OwnedFd,
) -> Result<(Report, Ctx)> {
    let Assignment { protocol, case, role, window, seed, dir, cpus } = assignment;
    if protocol != protocol::VERSION {
        bail!("the coordinator speaks protocol {protocol}, this child {}", protocol::VERSION);
    }
    let entry = registry.get(&case.mechanism).with_context(|| format!("no mechanism `{}`", case.mechanism))?;
    let pauses = descriptors.into_iter().next().map_or_else(Pauses::default, Pauses::new);
    let mut ctx = Ctx { rendezvous: Rendezvous::new(socket, dir), window, seed, cpus, pauses };
    let report = entry.run(&case, role, &mut ctx)?;
    Ok((report, ctx))
}

fn fail(socket: &OwnedFd, error: &str) -> bool {
    let error: String = error.chars().take(4_000).collect();
    // A coordinator that has gone hears nothing, and needs nothing.
    let _ = protocol::send(socket, &ToCoordinator::Failed { error }, &[]);
    false
}
