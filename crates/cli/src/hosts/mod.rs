//! Sessions with another host: how `bench --to` reaches it, and how `peer` is reached.
//!
//! [`target`] reads `tcp://` and `ssh://`, [`tcp`] and [`ssh`] open the connection, [`tls`]
//! encrypts one over TCP and proves the [`token`] on both sides. What is said over it is in
//! `estafette_measure::hosts`. `window` lengthens a run's windows for a long way.

mod greeting;
pub(crate) mod ssh;
pub(crate) mod target;
#[cfg(feature = "hosts")]
pub(crate) mod tcp;
#[cfg(feature = "hosts")]
mod tls;
#[cfg(feature = "hosts")]
pub(crate) mod token;
mod window;

use anyhow::{Result, bail};
use estafette_measure::case::Place;
use estafette_measure::fingerprint::Fingerprint;
use estafette_measure::hosts::OtherHost;
use estafette_measure::limits::Link;
use estafette_measure::plan::Plan;
use estafette_measure::record::Record;
use estafette_measure::units;

use self::greeting::commit;
pub(crate) use self::greeting::hello;
use self::target::Target;
use crate::args::ToHost;
use crate::columns::plain;
use crate::terminal::report_to_stderr;

/// The error of a build without TLS.
#[cfg(not(feature = "hosts"))]
pub(crate) const NO_TLS: &str =
    "this build has no TLS, which tcp:// needs: build with `--features hosts`, or use ssh://";

/// Opens the session that `bench --to` asks for, and fits the plan to the way to the other host.
/// Does nothing without `--to`. `is_window_given` says whether the user chose the window.
///
/// # Errors
/// If the other host cannot be reached, refuses, has another version, or is too far for the plan.
pub(crate) fn prepare(plan: &mut Plan, args: &ToHost, is_window_given: bool) -> Result<()> {
    let Some(host) = connect(args)? else { return Ok(()) };
    if let Some(note) = window::fit(plan, is_window_given, host.fastest_round_trip())? {
        report_to_stderr(&note);
    }
    plan.other_host = Some(host);
    Ok(())
}

fn connect(args: &ToHost) -> Result<Option<OtherHost>> {
    let Some(target) = &args.to else { return Ok(None) };
    let host = match target {
        Target::Ssh(target) => ssh::connect(target, args)?,
        #[cfg(feature = "hosts")]
        Target::Tcp(address) => tcp::connect(address, args)?,
        #[cfg(not(feature = "hosts"))]
        Target::Tcp(_) => anyhow::bail!(NO_TLS),
    };
    let peer = host.peer();
    if let (Some(ours), Some(theirs)) = (commit(), peer.commit.as_deref())
        && ours != theirs
    {
        report_to_stderr(&format!(
            "warning: {} was built from commit {theirs}, and this program from {ours}",
            peer.address
        ));
    }
    Ok(Some(host))
}

/// Checks that a run without another host has no such placement.
///
/// # Errors
/// If it has.
pub(crate) fn check_place(places: &[Place]) -> Result<()> {
    if places.contains(&Place::OtherHost) {
        bail!(
            "--place {} needs another host: name it with `bench --to ssh://HOST` or `--to tcp://HOST:PORT`",
            Place::OtherHost
        );
    }
    Ok(())
}

/// Names both hosts of a run between two, and says what the loss of their link costs. `None` for a
/// run on one.
pub(crate) fn sentence(record: &Record) -> Option<String> {
    let peer = record.peer.as_ref()?;
    let host = |fingerprint: &Fingerprint| {
        let Fingerprint { cpu, cores, kernel, .. } = fingerprint;
        plain(&format!("{cpu}, {cores} cores, Linux {kernel}"))
    };
    let [here, there] = [&record.fingerprint, &peer.fingerprint].map(host);
    let round_trip = units::duration(peer.round_trip_ns as f64);
    let address = plain(&peer.address);
    let loss = peer.link.as_ref().and_then(Link::loss_note).map_or_else(String::new, |note| format!(" {note}"));
    Some(format!(
        "Between two hosts: {here} → {there} at {address}. A packet of the session took {round_trip} there and back.{loss}"
    ))
}
