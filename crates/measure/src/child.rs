//! The main function of a child process: receives the assignment, runs the role, reports, and
//! waits for `done`.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::context::Ctx;
use crate::entry::Registry;
use crate::executor::panicked;
use crate::pauses::Pauses;
use crate::protocol::{self, Assignment, Report, ToChild, ToCoordinator};
use crate::rendezvous::Rendezvous;

/// The command-line argument that makes this program a child.
pub const ARGUMENT: &str = "__child";

/// Runs this process as a child of the coordinator whose socket is descriptor 0, then exits.
pub fn serve(registry: &Registry) -> ! {
    let status = match connect() {
        Ok(socket) => i32::from(!serve_on(registry, socket)),
        Err(error) => {
            eprintln!("estafette: `{ARGUMENT}` is for the command's own use: {error:#}");
            2
        }
    };
    // `exit` and not a return, because another party's thread may hang in its mechanism.
    std::process::exit(status)
}

fn connect() -> Result<OwnedFd> {
    // If the coordinator is killed, its children are killed too. If it died before this line, the
    // socket is closed.
    set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the coordinator")?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let kind = rustix::net::sockopt::socket_type(&socket).context("descriptor 0 is not a socket")?;
    if kind != rustix::net::SocketType::SEQPACKET {
        bail!("descriptor 0 is not a SOCK_SEQPACKET socket");
    }
    Ok(socket)
}

/// Serves the coordinator on this socket. Returns whether the role was played to its end and
/// reported.
fn serve_on(registry: &Registry, socket: OwnedFd) -> bool {
    let (assignment, descriptors) = loop {
        match protocol::receive(&socket) {
            Ok(Some((ToChild::Assignment(assignment), descriptors))) => break (assignment, descriptors),
            Ok(Some((ToChild::EffectiveCapacity(case), _))) => {
                let probed = catch_unwind(AssertUnwindSafe(|| {
                    registry.get(&case.mechanism)?.mechanism().effective_capacity(&case)
                }));
                let effective_capacity = probed.unwrap_or_default();
                if protocol::send(&socket, &ToCoordinator::EffectiveCapacity { effective_capacity }, &[]).is_err() {
                    return false;
                }
            }
            Ok(None) => return false,
            Ok(Some((other, _))) => {
                return fail(&socket, &format!("expected an assignment, but the coordinator sent {other:?}"));
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
            // The ends of this child stay open until all children have reported. Then `done`
            // arrives. If the coordinator has ended, nothing arrives and the work is over too.
            loop {
                match protocol::receive::<ToChild>(&socket) {
                    // Sent to a broker that has found the end by itself.
                    Ok(Some((ToChild::AllReported {}, _))) => {}
                    packet => break matches!(packet, Ok(Some((ToChild::Done {}, _)))),
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
    let Assignment { protocol, case, role, window, seed, secret, dir, address, tail_ns, link, cpus } = assignment;
    if protocol != protocol::VERSION {
        bail!(
            "the coordinator speaks protocol {protocol}, this child {}: build both with the same version of estafette-measure",
            protocol::VERSION
        );
    }
    let entry = registry.get(&case.mechanism).with_context(|| format!("no mechanism `{}`", case.mechanism))?;
    let pauses = descriptors.into_iter().next().map_or_else(Pauses::default, Pauses::new);
    let rendezvous = Rendezvous::new(socket, dir, address);
    let mut ctx = Ctx { rendezvous, window, tail_ns, link, seed, secret, cpus, pauses };
    let report = entry.run(&case, role, &mut ctx)?;
    Ok((report, ctx))
}

fn fail(socket: &OwnedFd, error: &str) -> bool {
    let error: String = error.chars().take(4_000).collect();
    // An error is ignored: it means that the coordinator has ended.
    let _ = protocol::send(socket, &ToCoordinator::Failed { error }, &[]);
    false
}
