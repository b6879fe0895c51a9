//! Rules for hosts: where each function, source and sink runs, and which topics cross.

use std::collections::BTreeSet;

use super::super::diagnostic::{Place, Problems, quoted};
use super::super::draft::{Draft, Drafts};
use super::super::hosts::{RESERVED, Use, ends};
use super::super::topic::Transport;
use super::super::value::nearest;
use super::super::{CheckedHost, Options};
use super::topics::did_you_mean;

/// Whether the files of a function or source must exist on this machine.
pub(super) fn is_checked<T>(draft: &Draft<T>, options: &Options) -> bool {
    match options.host {
        CheckedHost::Named(host) => draft.text("on").is_none_or(|on| on == host),
        CheckedHost::All | CheckedHost::Alone => true,
    }
}

pub(super) fn apply(drafts: &Drafts, options: &Options, found: &mut Problems) {
    names(drafts, found);
    named(drafts, options.host, found);
    certificate(drafts, found);
    let placed = placed(drafts);
    for Placed { what, name, on, place, .. } in placed.iter().filter(|it| !it.is_unclear) {
        placement(drafts, what, name, *on, *place, found);
    }
    if !drafts.hosts.is_empty() {
        unused(drafts, &placed, found);
        reserved(&placed, found);
        crossings(drafts, found);
    }
}

/// A function, source or sink, and its host.
struct Placed<'a> {
    what: &'static str,
    name: &'a str,
    on: Option<&'a str>,
    /// Whether `on` is no text, which is reported already.
    is_unclear: bool,
    /// The place of `on`, or of the whole entry.
    place: Place,
    name_place: Place,
}

fn placed(drafts: &Drafts) -> Vec<Placed<'_>> {
    fn one<'a, T>(what: &'static str, name: &'a str, draft: &'a Draft<T>) -> Placed<'a> {
        let (on, place, name_place) = (draft.text("on"), draft.at(&["on"]), draft.at(&["name"]));
        Placed { what, name, on, is_unclear: on.is_none() && draft.has("on"), place, name_place }
    }
    let functions = drafts.functions.iter().map(|draft| one("function", &draft.item.name, draft));
    let sources = drafts.sources.iter().map(|draft| one("source", &draft.item.name, draft));
    let sinks = drafts.sinks.iter().map(|draft| one("sink", &draft.item.name, draft));
    functions.chain(sources).chain(sinks).collect()
}

fn listed(drafts: &Drafts) -> String {
    let names: Vec<_> = drafts.hosts.iter().map(|host| quoted(&host.name)).collect();
    names.join(", ")
}

fn known(drafts: &Drafts) -> impl Iterator<Item = &str> {
    drafts.hosts.iter().map(|host| host.name.as_str())
}

/// Each host is listed once.
fn names(drafts: &Drafts, found: &mut Problems) {
    let mut seen = BTreeSet::new();
    for host in drafts.hosts.iter().filter(|host| !seen.insert(&host.name)) {
        found.error(host.place, format!("the host {} is listed twice", quoted(&host.name)), "remove one of the two");
    }
}

/// The host whose part will run must exist.
fn named(drafts: &Drafts, host: CheckedHost, found: &mut Problems) {
    let place = drafts.hosts.first().map_or(Place::of_first_file(), |host| host.place);
    match host {
        CheckedHost::All => {}
        CheckedHost::Alone if drafts.hosts.is_empty() => {}
        CheckedHost::Alone => {
            let help = format!("say whose part to run, `--host NAME` with one of {}", listed(drafts));
            found.error(place, "the pipeline runs on several hosts", help);
        }
        CheckedHost::Named(host) if known(drafts).any(|name| name == host) => {}
        CheckedHost::Named(host) if drafts.hosts.is_empty() => {
            let message = format!("there is no host {}: the pipeline has no `hosts`", quoted(host));
            found.error(place, message, "run it without `--host`, or add `hosts:` and where each function runs");
        }
        CheckedHost::Named(host) => {
            let meant = did_you_mean(nearest(host, known(drafts)));
            let help = format!("the hosts are {}", listed(drafts));
            found.error(place, format!("there is no host {}{meant}", quoted(host)), help);
        }
    }
}

/// A certificate for the NATS server has a key, and a key a certificate.
fn certificate(drafts: &Drafts, found: &mut Problems) {
    let Some(nats) = &drafts.nats else { return };
    for (given, absent) in [("certificate", "key"), ("key", "certificate")] {
        if nats.has_path(&["tls", given]) && !nats.has_path(&["tls", absent]) {
            let help = format!("add `{absent}:` with its PEM file, or remove `{given}`");
            found.error(nats.at(&["tls", given]), format!("`{given}` without `{absent}`"), help);
        }
    }
}

/// Each function, source and sink is on one of the hosts, if there are hosts.
fn placement(drafts: &Drafts, what: &str, name: &str, on: Option<&str>, place: Place, found: &mut Problems) {
    match on {
        None if drafts.hosts.is_empty() => {}
        None => {
            let message = format!("the {what} {} is on no host", quoted(name));
            found.error(place, message, format!("add `on:` with one of {}", listed(drafts)));
        }
        Some(on) if drafts.hosts.is_empty() => {
            let help = format!("add `hosts: [{on}]` to the pipeline's file, or remove `on`");
            found.error(place, "`on` without `hosts`", help);
        }
        Some(on) if known(drafts).any(|host| host == on) => {}
        Some(on) => {
            let meant = did_you_mean(nearest(on, known(drafts)));
            let help = format!("the hosts are {}; add it to `hosts` if it is a new one", listed(drafts));
            found.error(place, format!("there is no host {}{meant}", quoted(on)), help);
        }
    }
}

fn unused(drafts: &Drafts, placed: &[Placed], found: &mut Problems) {
    for host in drafts.hosts.iter().filter(|host| !placed.iter().any(|it| it.on == Some(&host.name))) {
        let message = format!("nothing runs on the host {}", quoted(&host.name));
        found.warning(host.place, message, "remove it, or let a function, source or sink run there");
    }
}

/// The ends of crossing topics have names of their own.
fn reserved(placed: &[Placed], found: &mut Problems) {
    for Placed { what, name, name_place, .. } in placed.iter().filter(|it| it.name.starts_with(RESERVED)) {
        let message = format!("the name {} of this {what} begins with `{RESERVED}`", quoted(name));
        found.error(*name_place, message, "rename it: such names belong to topics that cross hosts");
    }
}

/// A topic whose ends are on several hosts needs a server.
fn crossings(drafts: &Drafts, found: &mut Problems) {
    let topic = |name: &str| drafts.topics.iter().find(|topic| topic.name == name);
    let functions = drafts.functions.iter().filter_map(|draft| {
        let (input, output) = (draft.item.input.as_ref(), draft.item.output.as_slice());
        Some(Use { name: &draft.item.name, host: draft.text("on")?, input, output })
    });
    let sources = drafts.sources.iter().filter_map(|draft| {
        Some(Use { name: &draft.item.name, host: draft.text("on")?, input: None, output: &draft.item.output })
    });
    let sinks = drafts.sinks.iter().filter_map(|draft| {
        Some(Use { name: &draft.item.name, host: draft.text("on")?, input: Some(&draft.item.input), output: &[] })
    });
    let dead_letter = |name: &str| topic(name)?.draft.item.dead_letter.clone();
    let ends = ends(functions.chain(sources).chain(sinks), dead_letter);
    for (name, ends) in ends.iter().filter(|(_, ends)| ends.is_crossing()) {
        let hosts: Vec<_> = ends.from.union(&ends.to).map(|host| quoted(host)).collect();
        let place = topic(name).map_or_else(|| first_use(drafts, name), |topic| topic.draft.at(&["transport"]));
        if name.starts_with(RESERVED) {
            let message = format!("the name of the topic {} begins with `{RESERVED}`", quoted(name));
            found.error(place, message, "rename it: such names belong to topics that cross hosts");
        }
        match topic(name).map(|topic| topic.draft.item.transport).unwrap_or_default() {
            Transport::Nats if drafts.nats.is_some() => {}
            Transport::Nats => {
                let message = format!("the topic {} needs a NATS server, and none is given", quoted(name));
                found.error(
                    place,
                    message,
                    "add `nats: {servers: ['nats://HOST:4222'], prefix: NAME}` to the pipeline",
                );
            }
            Transport::Local => {
                let message = format!("the topic {} has ends on {}", quoted(name), hosts.join(" and "));
                let help =
                    format!("add {}: {{transport: nats}} to `topics`, or let its ends run on one host", quoted(name));
                found.error(place, message, help);
            }
        }
    }
}

/// The place where a topic is read, or else of the whole file.
fn first_use(drafts: &Drafts, name: &str) -> Place {
    super::readers(drafts)
        .iter()
        .find(|reader| reader.input.topic == name)
        .map_or(Place::of_first_file(), |it| it.place)
}
