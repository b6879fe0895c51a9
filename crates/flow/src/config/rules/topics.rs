//! Rules for topics: unread or unwritten topics, loops, and policies that contradict each other.
//!
//! A topic that is read but not *written* is an error: its readers would wait forever, and the name
//! is probably misspelt. A topic that is written but not *read* is a warning: the pipeline runs,
//! and the messages are discarded. That is legal, for example if several pipelines share a
//! function's file and one of them does not need an output.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::units;

use super::super::diagnostic::{Place, Problems, quoted};
use super::super::draft::{Drafts, TopicDraft};
use super::super::topic::{Delivery, Overflow, Topic, Transport};
use super::super::value::nearest;
use super::readers;

/// The uses of topics: for each name, the first place where it is used.
struct Uses<'a> {
    read: BTreeMap<&'a str, Place>,
    written: BTreeMap<&'a str, Place>,
    dead_letters: BTreeMap<&'a str, Place>,
}

pub(super) fn apply(drafts: &Drafts, found: &mut Problems) {
    for topic in &drafts.topics {
        sizes(topic, found);
        delivery(topic, found);
        settings_of_nats(topic, found);
        message_ids(topic, found);
    }
    dead_letter_cycles(drafts, found);
    dead_letter_sizes(drafts, found);
    if !found.hides_wiring() {
        let uses = uses(drafts);
        unknown_dead_letters(drafts, &uses, found);
        flow(drafts, &uses, found);
        loops(drafts, found);
    }
}

fn uses(drafts: &Drafts) -> Uses<'_> {
    let mut uses = Uses { read: BTreeMap::new(), written: BTreeMap::new(), dead_letters: BTreeMap::new() };
    for reader in readers(drafts) {
        uses.read.entry(&reader.input.topic).or_insert(reader.place);
    }
    let keys = ["output", "topics"];
    for draft in &drafts.functions {
        for (index, topic) in draft.item.output.iter().enumerate() {
            uses.written.entry(topic).or_insert_with(|| draft.at_entry(&keys, index));
        }
    }
    for draft in &drafts.sources {
        for (index, topic) in draft.item.output.iter().enumerate() {
            uses.written.entry(topic).or_insert_with(|| draft.at_entry(&keys, index));
        }
    }
    for topic in &drafts.topics {
        if let Some(name) = &topic.draft.item.dead_letter {
            uses.dead_letters.entry(name).or_insert_with(|| topic.draft.at(&["dead_letter"]));
        }
    }
    uses
}

/// A ring must have space for at least one message of the maximum length.
fn sizes(topic: &TopicDraft, found: &mut Problems) {
    let Topic { capacity, max_message, .. } = topic.draft.item;
    let needed = max_message.checked_add(Topic::HEADER).and_then(|bytes| bytes.checked_next_multiple_of(8));
    if needed.is_none_or(|needed| needed > capacity) {
        let (max, capacity) = (units::size(max_message as u64), units::size(capacity as u64));
        let message = format!("a message of {max} and its header do not fit into a capacity of {capacity}");
        let needed = units::size(needed.unwrap_or(usize::MAX) as u64);
        let help = format!("set `capacity` to {needed} or more, or `max_message` to less");
        let key = if topic.draft.has("max_message") { "max_message" } else { "capacity" };
        found.error(topic.draft.at(&[key]), message, help);
    }
}

/// Delivery policies must not contradict each other: `drop-oldest` drops messages that
/// `at-least-once` guarantees, and the keys for attempts need `at-least-once`.
fn delivery(topic: &TopicDraft, found: &mut Problems) {
    let (draft, policies) = (&topic.draft, &topic.draft.item);
    if policies.delivery == Delivery::AtLeastOnce {
        if policies.overflow == Overflow::DropOldest {
            let message = "`drop-oldest` drops messages that `at-least-once` promises to deliver";
            let help = "take `overflow: block`, or `drop-new`, which drops before it promises; or `at-most-once`";
            found.error(draft.at(&["overflow"]), message, help);
        }
        return;
    }
    for key in ["max_deliver", "dead_letter"].into_iter().filter(|key| draft.has(key)) {
        let help = format!("add `delivery: at-least-once`, or remove `{key}`");
        found.error(draft.at(&[key]), format!("`{key}` without `delivery: at-least-once`"), help);
    }
}

/// `batch` and `message_ids` are only for topics on a server.
fn settings_of_nats(topic: &TopicDraft, found: &mut Problems) {
    let draft = &topic.draft;
    if draft.item.transport != Transport::Local {
        return;
    }
    for (key, is_set) in [("batch", draft.has("batch")), ("message_ids", !draft.item.message_ids)] {
        if is_set {
            let help = format!("add `transport: nats`, or remove `{key}`: it is for messages on a NATS server");
            found.error(draft.at(&[key]), format!("`{key}` without `transport: nats`"), help);
        }
    }
}

/// A server recognises a message that is sent again by its ID.
fn message_ids(topic: &TopicDraft, found: &mut Problems) {
    let policies = &topic.draft.item;
    let is_on_server = policies.transport == Transport::Nats;
    if is_on_server && policies.delivery == Delivery::AtLeastOnce && !policies.message_ids {
        let message = "`message_ids: false` with `delivery: at-least-once`";
        let help = "remove `message_ids`: the server recognises a message that is sent again by its ID";
        found.error(topic.draft.at(&["message_ids"]), message, help);
    }
}

/// A dead-letter topic must accept the longest message of the topics that send to it.
fn dead_letter_sizes(drafts: &Drafts, found: &mut Problems) {
    for topic in &drafts.topics {
        let Some(name) = &topic.draft.item.dead_letter else { continue };
        let listed = drafts.topics.iter().find(|other| other.name == *name);
        let allowed = listed.map_or(Topic::MAX_MESSAGE, |other| other.draft.item.max_message);
        let longest = topic.draft.item.max_message;
        if allowed < longest {
            let (allowed, longest) = (units::size(allowed as u64), units::size(longest as u64));
            let message = format!("{} takes messages of {allowed}, this topic of {longest}", quoted(name));
            let help = format!("set `max_message` of {} to {longest} or more", quoted(name));
            found.error(topic.draft.at(&["dead_letter"]), message, help);
        }
    }
}

/// Dead-letter topics must not form a cycle.
fn dead_letter_cycles(drafts: &Drafts, found: &mut Problems) {
    let next: BTreeMap<&str, &str> = drafts
        .topics
        .iter()
        .filter_map(|topic| Some((topic.name.as_str(), topic.draft.item.dead_letter.as_deref()?)))
        .collect();
    for topic in &drafts.topics {
        let mut seen = BTreeSet::new();
        let mut at = topic.name.as_str();
        while let Some(to) = next.get(at).filter(|_| seen.insert(at)) {
            at = to;
        }
        if at == topic.name && seen.contains(at) {
            let message = format!("dead letters of {} come back to it", quoted(&topic.name));
            let help = "let them end in a topic without `dead_letter`";
            found.error(topic.draft.at(&["dead_letter"]), message, help);
        }
    }
}

/// The dead-letter topic must exist: it is listed in `topics:`, or has a reader.
fn unknown_dead_letters(drafts: &Drafts, uses: &Uses, found: &mut Problems) {
    let declared = || drafts.topics.iter().map(|topic| topic.name.as_str());
    for topic in &drafts.topics {
        let Some(name) = &topic.draft.item.dead_letter else { continue };
        if uses.read.contains_key(name.as_str()) || declared().any(|other| other == name) {
            continue;
        }
        let meant = nearest(name, declared().filter(|other| *other != topic.name).chain(uses.read.keys().copied()));
        let message = format!("the dead-letter topic {} is not known{}", quoted(name), did_you_mean(meant));
        found.error(topic.draft.at(&["dead_letter"]), message, "add a function or sink that reads it");
    }
}

/// Warns of functions whose output comes back to them. If every topic of the loop blocks while it
/// is full, a loop that fills never moves again. A loop whose functions send less than they receive
/// is fine, and no check can know.
fn loops(drafts: &Drafts, found: &mut Problems) {
    let listed = |name: &str| drafts.topics.iter().find(|topic| topic.name == name);
    let blocks = |name: &str| listed(name).is_none_or(|topic| topic.draft.item.overflow == Overflow::Block);
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for draft in &drafts.functions {
        let Some(input) = draft.item.input.as_ref().filter(|input| blocks(&input.topic)) else { continue };
        let outputs = draft.item.output.iter().map(String::as_str).filter(|name| blocks(name));
        next.entry(&input.topic).or_default().extend(outputs);
    }
    let mut reported = BTreeSet::new();
    for draft in &drafts.functions {
        let Some(input) = &draft.item.input else { continue };
        for (index, output) in draft.item.output.iter().enumerate() {
            let after = reachable(output, &next);
            if !next.contains_key(&*input.topic) || !after.contains(&*input.topic) || !reported.insert(&*input.topic) {
                continue;
            }
            reported.extend(after.into_iter().filter(|topic| reachable(topic, &next).contains(&*input.topic)));
            let message = format!("messages sent to {} can come back through {}", quoted(output), quoted(&input.topic));
            let help = "a loop that is full never moves again; set `overflow: drop-oldest` or `drop-new` for one of its \
                        topics, unless its functions send less than they receive";
            found.warning(draft.at_entry(&["output", "topics"], index), message, help);
        }
    }
}

/// The topics that messages of a topic reach, with itself.
fn reachable<'a>(from: &'a str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(topic) = left.pop() {
        if reached.insert(topic) {
            left.extend(next.get(topic).into_iter().flatten());
        }
    }
    reached
}

pub(super) fn did_you_mean(meant: Option<&str>) -> String {
    meant.map(|meant| format!("; did you mean {}?", quoted(meant))).unwrap_or_default()
}

/// Reports topics without a writer, without a reader, and without both.
fn flow(drafts: &Drafts, uses: &Uses, found: &mut Problems) {
    let is_written = |name: &str| uses.written.contains_key(name) || uses.dead_letters.contains_key(name);
    for (name, place) in uses.read.iter().filter(|(name, _)| !is_written(name)) {
        let unread = uses.written.keys().copied().filter(|other| !uses.read.contains_key(other));
        let message = format!("nobody writes the topic {}{}", quoted(name), did_you_mean(nearest(name, unread)));
        found.error(*place, message, "add it to the `output` of a function or source, or correct the name");
    }
    let outputs =
        uses.written.iter().chain(uses.dead_letters.iter().filter(|(name, _)| !uses.written.contains_key(*name)));
    let declared: BTreeSet<_> = drafts.topics.iter().map(|topic| topic.name.as_str()).collect();
    for (name, place) in outputs.filter(|(name, _)| !uses.read.contains_key(*name)) {
        // An undeclared dead-letter topic was reported as an error before.
        if uses.written.contains_key(name) || declared.contains(name) {
            let message = format!("nobody reads the topic {}: its messages go nowhere", quoted(name));
            found.warning(*place, message, "add a function or sink that reads it, or remove the output");
        }
    }
    for topic in drafts.topics.iter().filter(|topic| !uses.read.contains_key(topic.name.as_str())) {
        if !is_written(&topic.name) {
            let known = uses.read.keys().chain(uses.written.keys()).copied().filter(|name| !declared.contains(name));
            let meant = did_you_mean(nearest(&topic.name, known));
            let message = format!("nobody reads or writes the topic {}{meant}", quoted(&topic.name));
            found.error(topic.place, message, "remove it, or correct its name");
        }
    }
}
