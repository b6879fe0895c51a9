//! The tables of `message-io-performance`: for every transport what a library moves in a second beside what is written by hand,
//! and what it adds to the time that a byte takes.
//!
//! The reference's hand-written way is the *basic* one: blocking, a call for each message. *Tuned* is the most that can be
//! written by hand. Its latency is that of one thread that sends and receives, which wakes nobody; a round trip between two
//! processes stands in a table of its own.

use estafette_measure::case::{Cell, Load, Pattern, Place};
use estafette_measure::ranking::{Ranking, Row, RowResult};
use estafette_measure::spec::{Loss, Scope, Wait};
use estafette_measure::units;

use crate::columns::{Left, Right, columns, plain, wrapped};
use crate::table::percent;

/// The transports, and how mechanisms call them, those first whose name has another's in it.
const TRANSPORTS: [(&str, &str); 7] = [
    ("UNIX, framed", "unix-framed"),
    ("UDP", "udp"),
    ("Framed TCP", "framed"),
    ("WebSocket", "ws"),
    ("TLS, framed", "tls"),
    ("QUIC", "quic"),
    ("TCP", "tcp"),
];
/// The order in which they are shown: the reference's, then the others.
const ORDER: [&str; 7] = ["UDP", "TCP", "Framed TCP", "WebSocket", "TLS, framed", "UNIX, framed", "QUIC"];
/// Libraries whose name does not tell the transport: those that keep messages apart over TCP do so by frames of their own.
const NAMED: [(&str, &str, &str); 6] = [
    ("tokio-tungstenite", "WebSocket", "tokio-tungstenite"),
    ("fastwebsockets", "WebSocket", "fastwebsockets"),
    ("quic", "QUIC", "quinn"),
    ("zeromq", "Framed TCP", "ZeroMQ"),
    ("nng", "Framed TCP", "nng"),
    ("zenoh", "Framed TCP", "zenoh"),
];
/// Libraries beside each other in one table: with the two ways by hand it is at most 100 columns wide.
const LIBRARIES: usize = 3;

/// The length of the messages whose throughput the reference measures.
const CHUNK: usize = 65_507;
/// That of its latency, and of a datagram, which has to say which it is.
const BYTE: usize = 1;
const DATAGRAM: usize = 8;

/// One of the two tables: its title, its cell, a figure, and what a figure is beside that by hand.
struct Shown {
    title: &'static str,
    pattern: Pattern,
    length: usize,
    figure: fn(&RowResult) -> String,
    beside: (&'static str, fn(f64, f64) -> String),
}

const SHOWN: [Shown; 3] = [
    Shown {
        title: "Throughput: a stream of 65,507 bytes a message; efficiency beside basic",
        pattern: Pattern::Stream,
        length: CHUNK,
        figure: |result| units::bandwidth(CHUNK as f64 * 1e9 / result.metric_ns),
        beside: ("efficiency", |ns, by_hand| percent(by_hand / ns)),
    },
    Shown {
        title: "Latency of 1 byte (UDP: 8) that one thread sends and receives; overhead over basic",
        pattern: Pattern::SameThread,
        length: BYTE,
        figure: |result| units::duration(result.metric_ns),
        beside: ("overhead", added),
    },
    Shown {
        title: "Round trip of 1 byte (UDP: 8) between two processes that sleep; overhead over basic",
        pattern: Pattern::PingPong,
        length: BYTE,
        figure: |result| units::duration(result.metric_ns),
        beside: ("overhead", added),
    },
];

/// What a library adds, in microseconds, or saves.
fn added(ns: f64, by_hand: f64) -> String {
    format!("{:+.2} us", (ns - by_hand) / 1e3)
}

/// The tables of a record; nothing where no network was measured in these cells.
pub(crate) fn tables(rankings: &[Ranking]) -> String {
    let [throughput, times @ ..] = SHOWN.each_ref().map(|shown| table(shown, rankings));
    // What it takes stands below it.
    let costs = if throughput.is_empty() { None } else { costs(rankings) };
    let tables: Vec<String> = throughput.into_iter().chain(costs).chain(times.into_iter().flatten()).collect();
    match &*tables {
        [] => String::new(),
        _ => format!("In the shape of message-io-performance\n\n{}\n", tables.join("\n")),
    }
}

/// What the first of the tables takes for every GiB.
fn costs(rankings: &[Ranking]) -> Option<String> {
    let [throughput, ..] = &SHOWN;
    let messages = (1_u64 << 30) as f64 / throughput.length as f64;
    let ranking = rankings.iter().find(|ranking| is_of(throughput, ranking) && ranking.cell.payload.len() == CHUNK)?;
    let mut rows: Vec<_> = ranking.rows.iter().filter(|row| parts(&row.spec.name).is_some()).collect();
    let place = |row: &&Row| parts(&row.spec.name).and_then(|(at, _)| ORDER.iter().position(|known| *known == at));
    rows.sort_by_key(place);
    let rows = rows.into_iter().filter_map(|row| {
        let (transport, library) = parts(&row.spec.name)?;
        let cpu = row.result.as_ref().and_then(|result| result.cpu_ns).map(|ns| units::duration(ns * messages));
        let calls = row.calls.map(|calls| units::grouped((calls * messages).round() as u64));
        cpu.as_ref().or(calls.as_ref())?;
        let figure = |figure: Option<String>| figure.unwrap_or_else(|| String::from("-"));
        Some(vec![transport.to_owned(), plain(library), figure(cpu), figure(calls)])
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let headers = ["", "by", "processor time", "system calls"];
    let table = columns(&headers, &[Left, Left, Right, Right], &rows);
    (!rows.is_empty()).then(|| format!("{}{table}", wrapped("", "What 1 GiB of that stream takes, of both processes")))
}

/// A transport, a library and what it measured.
type Entry<'a> = (&'static str, &'a str, &'a RowResult);

fn table(shown: &Shown, rankings: &[Ranking]) -> Vec<String> {
    let entries: Vec<Entry<'_>> = rankings
        .iter()
        .filter(|ranking| is_of(shown, ranking))
        .flat_map(|ranking| ranking.rows.iter().map(move |row| (ranking.cell.payload.len(), row)))
        .filter_map(|(len, row)| {
            let says_which = row.spec.loss == Loss::BestEffort && shown.length == BYTE;
            let wanted = if says_which { DATAGRAM } else { shown.length };
            let (transport, library) = parts(&row.spec.name).filter(|_| len == wanted)?;
            Some((transport, library, row.result.as_ref()?))
        })
        .collect();
    let mut libraries: Vec<&str> = Vec::new();
    for (_, library, _) in &entries {
        if !is_by_hand(library) && !libraries.contains(library) {
            libraries.push(library);
        }
    }
    // Nothing to set beside each other is no table.
    if !entries.iter().any(|(_, library, _)| *library == BASIC) || libraries.is_empty() {
        return Vec::new();
    }
    libraries.chunks(LIBRARIES).map(|libraries| part(shown, &entries, libraries)).collect()
}

/// Whether a cell is one of those that a table shows, whatever the length of its messages.
fn is_of(shown: &Shown, ranking: &Ranking) -> bool {
    let cell = &ranking.cell;
    let usual = cell.wait == Wait::Block && cell.load == Load::Saturated && cell.capacity == Cell::CAPACITY;
    let place = if shown.pattern.is_one_thread() { Place::SameCore } else { Place::OtherCore };
    cell.scope == Scope::Network && cell.pattern == shown.pattern && usual && cell.place == place
}

const BASIC: &str = "basic";
const TUNED: &str = "tuned";

fn is_by_hand(library: &str) -> bool {
    [BASIC, TUNED].contains(&library)
}

/// The columns of some libraries, and the rows of the transports that any of them has.
fn part(shown: &Shown, entries: &[Entry<'_>], libraries: &[&str]) -> String {
    let (word, beside) = shown.beside;
    let of = |transport: &str, library: &str| {
        entries.iter().find(|(at, by, _)| (*at, *by) == (transport, library)).map(|(.., result)| *result)
    };
    let names: Vec<String> = libraries.iter().map(|library| plain(library)).collect();
    let tuned = entries.iter().any(|(_, library, _)| *library == TUNED).then_some(TUNED);
    let mut headers: Vec<&str> = ["", BASIC].into_iter().chain(tuned).collect();
    names.iter().for_each(|name| headers.extend([name, word]));
    let rows = ORDER.iter().filter(|transport| libraries.iter().any(|library| of(transport, library).is_some()));
    let rows = rows.map(|transport| {
        let by_hand = of(transport, BASIC);
        let figure = |result: Option<&RowResult>| result.map_or(String::from("-"), shown.figure);
        let mut row = vec![(*transport).to_owned(), figure(by_hand)];
        row.extend(tuned.map(|tuned| figure(of(transport, tuned))));
        for library in libraries {
            let result = of(transport, library);
            let ratio = by_hand.zip(result).map(|(by_hand, result)| beside(result.metric_ns, by_hand.metric_ns));
            row.extend([figure(result), ratio.unwrap_or_default()]);
        }
        row
    });
    let alignment = [&[Left][..], &vec![Right; headers.len() - 1]].concat();
    format!("{}{}", wrapped("", shown.title), columns(&headers, &alignment, &rows.collect::<Vec<_>>()))
}

/// Which transport a mechanism uses, and by what: `network/framed-tuned`, `network/message-io-udp`, `network/tcp`.
fn parts(name: &str) -> Option<(&'static str, &str)> {
    let name = name.strip_prefix("network/")?;
    if let Some((_, transport, library)) = NAMED.iter().find(|(known, ..)| *known == name) {
        return Some((transport, library));
    }
    TRANSPORTS.iter().find_map(|(transport, word)| {
        if name == *word {
            return Some((*transport, BASIC));
        }
        let before = name.strip_prefix(word).and_then(|rest| rest.strip_prefix('-'));
        let behind = || name.strip_suffix(word).and_then(|rest| rest.strip_suffix('-'));
        before.or_else(behind).map(|library| (*transport, library))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_transport_and_the_library() {
        for (name, transport, library) in [
            ("network/udp", "UDP", "basic"),
            ("network/tcp-tuned", "TCP", "tuned"),
            ("network/framed-basic", "Framed TCP", "basic"),
            ("network/unix-framed-estafette", "UNIX, framed", "estafette"),
            ("network/message-io-ws", "WebSocket", "message-io"),
            ("network/tokio-tungstenite", "WebSocket", "tokio-tungstenite"),
            ("network/tls-estafette", "TLS, framed", "estafette"),
        ] {
            assert_eq!(parts(name), Some((transport, library)), "{name}");
        }
        assert_eq!(parts("network/zenoh"), Some(("Framed TCP", "zenoh")));
        assert_eq!(parts("network/other"), None);
        assert_eq!(parts("process/udp"), None);
    }

    #[test]
    fn what_a_library_adds_or_saves_is_signed() {
        assert_eq!(added(3500.0, 2600.0), "+0.90 us");
        assert_eq!(added(2600.0, 3500.0), "-0.90 us");
    }
}
