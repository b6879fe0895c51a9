//! The tables of `message-io-performance`: for every transport, the throughput of libraries
//! compared with hand-written code, and the latency that they add for a message of one byte.
//!
//! The reference's hand-written code is *basic*: blocking, with one call per message. *Tuned* is
//! the fastest hand-written code here. The reference measures latency as a loopback in one thread,
//! which wakes no other thread. A round trip between two processes has a table of its own.

use estafette_measure::case::{Cell, Load, Pattern, Place};
use estafette_measure::ranking::{Ranking, Row, RowResult};
use estafette_measure::spec::{Loss, Scope, Wait};
use estafette_measure::units;

use crate::columns::{Left, Right, columns, plain, wrapped};
use crate::table::percent;

/// The transports, and the word for each in mechanism names. A word that contains another comes
/// before it.
const TRANSPORTS: [(&str, &str); 7] = [
    ("UNIX, framed", "unix-framed"),
    ("UDP", "udp"),
    ("Framed TCP", "framed"),
    ("WebSocket", "ws"),
    ("TLS, framed", "tls"),
    ("QUIC", "quic"),
    ("TCP", "tcp"),
];
/// The order of the rows: the reference's transports, then the others.
const ORDER: [&str; 7] = ["UDP", "TCP", "Framed TCP", "WebSocket", "TLS, framed", "UNIX, framed", "QUIC"];
/// Mechanisms whose name does not contain the transport: the name, the transport and the library.
/// Those over TCP that preserve message boundaries use a framing of their own.
const NAMED: [(&str, &str, &str); 6] = [
    ("tokio-tungstenite", "WebSocket", "tokio-tungstenite"),
    ("fastwebsockets", "WebSocket", "fastwebsockets"),
    ("quic", "QUIC", "quinn"),
    ("zeromq", "Framed TCP", "ZeroMQ"),
    ("nng", "Framed TCP", "nng"),
    ("zenoh", "Framed TCP", "zenoh"),
];
/// The maximum number of libraries in one table. With `basic` and `tuned`, it is then at most 100
/// columns wide.
const LIBRARIES: usize = 3;

/// The message length in the reference's throughput tests, in bytes.
const CHUNK: usize = 65_507;
/// The message length in the reference's latency tests, in bytes.
const BYTE: usize = 1;
/// The length instead of [`BYTE`] for datagrams, which must contain a sequence number.
const DATAGRAM: usize = 8;

/// A table: its title, its cell, its figure, and the comparison of a library's figure with `basic`.
struct Shown {
    title: &'static str,
    pattern: Pattern,
    length: usize,
    figure: fn(&RowResult) -> String,
    /// The header of the comparison, and its text from the nanoseconds of the library and of
    /// `basic`.
    comparison: (&'static str, fn(f64, f64) -> String),
}

const SHOWN: [Shown; 3] = [
    Shown {
        title: "Throughput: a stream of 65,507 bytes a message; efficiency beside basic",
        pattern: Pattern::Stream,
        length: CHUNK,
        figure: |result| units::bandwidth(CHUNK as f64 * 1e9 / result.metric_ns),
        comparison: ("efficiency", |ns, by_hand| percent(by_hand / ns)),
    },
    Shown {
        title: "Latency of 1 byte (UDP: 8) that one thread sends and receives; overhead over basic",
        pattern: Pattern::SameThread,
        length: BYTE,
        figure: |result| units::duration(result.metric_ns),
        comparison: ("overhead", added),
    },
    Shown {
        title: "Round trip of 1 byte (UDP: 8) between two processes that sleep; overhead over basic",
        pattern: Pattern::PingPong,
        length: BYTE,
        figure: |result| units::duration(result.metric_ns),
        comparison: ("overhead", added),
    },
];

/// Returns the time that a library adds, or saves if negative, in microseconds.
fn added(ns: f64, by_hand: f64) -> String {
    format!("{:+.2} us", (ns - by_hand) / 1e3)
}

/// Returns the tables of a record; empty if it has none of their cells.
pub(crate) fn tables(rankings: &[Ranking]) -> String {
    let [throughput, times @ ..] = SHOWN.each_ref().map(|shown| table(shown, rankings));
    // The costs belong to the throughput table, and follow it.
    let costs = if throughput.is_empty() { None } else { costs(rankings) };
    let tables: Vec<String> = throughput.into_iter().chain(costs).chain(times.into_iter().flatten()).collect();
    match &*tables {
        [] => String::new(),
        _ => format!("In the shape of message-io-performance\n\n{}\n", tables.join("\n")),
    }
}

/// Returns the table of processor time and system calls per GiB in the throughput table's cell.
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

/// A transport, a library and its result.
type Entry<'a> = (&'static str, &'a str, &'a RowResult);

fn table(shown: &Shown, rankings: &[Ranking]) -> Vec<String> {
    let entries: Vec<Entry<'_>> = rankings
        .iter()
        .filter(|ranking| is_of(shown, ranking))
        .flat_map(|ranking| ranking.rows.iter().map(move |row| (ranking.cell.payload.len(), row)))
        .filter_map(|(len, row)| {
            let needs_sequence_number = row.spec.loss == Loss::BestEffort && shown.length == BYTE;
            let wanted = if needs_sequence_number { DATAGRAM } else { shown.length };
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
    // Without a comparison there is no table.
    if !entries.iter().any(|(_, library, _)| *library == BASIC) || libraries.is_empty() {
        return Vec::new();
    }
    libraries.chunks(LIBRARIES).map(|libraries| part(shown, &entries, libraries)).collect()
}

/// Whether a table shows this cell, if its message length fits.
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

/// Returns a table with columns for these libraries, and rows for the transports that they have.
fn part(shown: &Shown, entries: &[Entry<'_>], libraries: &[&str]) -> String {
    let (word, compare) = shown.comparison;
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
            let ratio = by_hand.zip(result).map(|(by_hand, result)| compare(result.metric_ns, by_hand.metric_ns));
            row.extend([figure(result), ratio.unwrap_or_default()]);
        }
        row
    });
    let alignment = [&[Left][..], &vec![Right; headers.len() - 1]].concat();
    format!("{}{}", wrapped("", shown.title), columns(&headers, &alignment, &rows.collect::<Vec<_>>()))
}

/// Parses the transport and the library from a mechanism's name: `network/framed-tuned`,
/// `network/message-io-udp`, `network/tcp`.
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
    fn a_name_contains_the_transport_and_the_library() {
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
    fn added_time_has_a_sign() {
        assert_eq!(added(3500.0, 2600.0), "+0.90 us");
        assert_eq!(added(2600.0, 3500.0), "-0.90 us");
    }
}
