//! The tables of `wasm-pipeline-throughput`: for every pipeline and message length, the number of
//! messages, the milliseconds from the first to the last message, and the resulting MiB/s.
//!
//! A further column is the speed as a percentage of the native pair's, compared within each round:
//! the median, the minimum and the maximum.
//!
//! For its first pipeline, the reference published figures of another machine. The MiB/s that it
//! prints are lower than its messages and milliseconds give, so both readings are shown. Our
//! figures are compared with the higher reading, calculated from the milliseconds.

use estafette_measure::case::Pattern;
use estafette_measure::pairs::log_ratios;
use estafette_measure::ranking::{Ranking, Row};
use estafette_measure::record::{Outcome, Record};
use estafette_measure::spec::Standing;
use estafette_measure::units::{grouped, three_digits};

use crate::columns::{Left, Right, columns, plain, wrapped};

const MIB: f64 = (1 << 20) as f64;

/// A published throughput of the reference, in MiB/s.
struct PublishedRate {
    /// The message length in bytes.
    len: usize,
    /// As the reference prints it.
    printed: f64,
    /// Calculated from the milliseconds that the reference prints.
    from_its_time: f64,
}

/// The published figures of the first pipeline.
const PUBLISHED: [PublishedRate; 3] = [
    PublishedRate { len: 1_000, printed: 187.0, from_its_time: 216.0 },
    PublishedRate { len: 10_000, printed: 986.0, from_its_time: 1202.0 },
    PublishedRate { len: 100_000, printed: 431.0, from_its_time: 476.0 },
];

/// Returns the tables of a record; empty if no pipelines were measured.
pub(crate) fn tables(record: &Record, rankings: &[Ranking]) -> String {
    let pipelines = rankings.iter().filter(|ranking| ranking.cell.pattern.is_pipeline());
    let text: String = pipelines.map(|ranking| table(record, ranking)).collect();
    match &*text {
        "" => text,
        _ => {
            let title = "In the shape of wasm-pipeline-throughput: from a receiver's first message to the last of all";
            format!("{}\n{text}", wrapped("", title))
        }
    }
}

/// The reference's name of a pipeline.
fn title(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::SendChecksum => "send → checksum",
        Pattern::SendCompete => "send → two that compete",
        _ => "send → receive",
    }
}

fn table(record: &Record, ranking: &Ranking) -> String {
    let len = ranking.cell.payload.len();
    let published = PUBLISHED.iter().find(|published| published.len == len);
    let published = published.filter(|_| ranking.cell.pattern == Pattern::SendReceive);
    let native = ranking.rows.iter().find(|row| row.spec.standing == Standing::Reference);
    let native = native.and_then(|row| entrant(record, ranking, row));
    let rows = ranking.rows.iter().map(|row| {
        let name = plain(row.spec.name.split_once('/').map_or(row.spec.name.as_str(), |(_, name)| name));
        let at = entrant(record, ranking, row);
        let Some((result, at)) = row.result.as_ref().zip(at) else { return vec![name, String::from("failed")] };
        let count = messages(record, at);
        let speed = len as f64 * 1e9 / result.metric_ns / MIB;
        let part = native.filter(|native| *native != at).and_then(|native| part(log_ratios(record, native, at)));
        vec![
            name,
            grouped(count),
            three_digits(count as f64 * result.metric_ns / 1e6),
            grouped(speed.round() as u64),
            part.unwrap_or_default(),
            published.map_or(String::new(), |published| format!("{:.1}×", speed / published.from_its_time)),
        ]
    });
    let beside = if published.is_some() { "the reference" } else { "" };
    let headers = ["", "messages", "ms", "MiB/s", "of the native pair", beside];
    let table = columns(&headers, &[Left, Right, Right, Right, Left, Right], &rows.collect::<Vec<_>>());
    let said = published.map_or(String::new(), |published| {
        let PublishedRate { printed, from_its_time, .. } = published;
        let words =
            format!("the reference, elsewhere: {from_its_time} MiB/s by its milliseconds, {printed} as it prints it");
        wrapped("  ", &words)
    });
    format!("{}, {} bytes\n{table}{said}\n", title(ranking.cell.pattern), grouped(len as u64))
}

/// Returns the index of a row's entrant in the record.
fn entrant(record: &Record, ranking: &Ranking, row: &Row) -> Option<usize> {
    record.entrants.iter().position(|entrant| {
        let case = &entrant.case;
        case.cell == ranking.cell && case.mechanism == row.spec.name && !entrant.control
    })
}

/// Returns the number of messages in each valid instance of an entrant.
fn messages(record: &Record, at: usize) -> u64 {
    let measured =
        record.instances.iter().filter(|instance| instance.entrant == at).find_map(|instance| {
            match &instance.outcome {
                Outcome::Measured(figures) if figures.discarded.is_none() => Some(figures.messages),
                _ => None,
            }
        });
    measured.unwrap_or_default()
}

/// Formats ln ratios of rounds: `81 % (76 to 85)` are the median, the minimum and the maximum.
fn part(mut ratios: Vec<f64>) -> Option<String> {
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (*ratios.first()?, *ratios.last()?);
    let median = (ratios[(ratios.len() - 1) / 2] + ratios[ratios.len() / 2]) / 2.0;
    let [least, median, most] = [least, median, most].map(|ratio| format!("{:.0}", ratio.exp() * 100.0));
    Some(format!("{median} % ({least} to {most})"))
}

#[cfg(test)]
mod tests {
    use estafette_measure::case::Case;
    use estafette_measure::fingerprint::Fingerprint;
    use estafette_measure::plan::Entrant;
    use estafette_measure::ranking;
    use estafette_measure::record::{FORMAT, VERSION};
    use estafette_measure::spec::Spec;
    use estafette_measure::suite::{Profile, Suite};
    use serde_json::json;

    use super::*;

    /// A record of the quick cells with two rounds. `ms` has the milliseconds that each mechanism
    /// takes for 1,001 messages in each round.
    fn record(ms: [(&str, [f64; 2]); 2]) -> Record {
        let cells = Suite::Flow.cells(Profile::Quick);
        let cells = cells.into_iter().filter(|cell| cell.pattern.is_pipeline());
        let entrants: Vec<_> = cells
            .flat_map(|cell| {
                ms.map(|(name, _)| Entrant::new(Case { mechanism: name.into(), cell: cell.clone() }, false))
            })
            .collect();
        let instances = (0..2).flat_map(|round| (0..entrants.len()).map(move |entrant| (round, entrant)));
        let instances = instances.map(|(round, entrant)| {
            let window_ns = (ms[entrant % 2].1[round] * 1e6) as u64;
            json!({ "round": round, "entrant": entrant, "outcome": { "measured": {
                "messages": 1001, "window_ns": window_ns, "latency": null, "cpu_ns_per_message": null,
                "switches_per_message": null, "offered": 1001, "delivered": 1001, "lost_in_window": 0, "breach": null,
                "steal": 0.0, "discarded": null, "faults": { "lost": 0, "duplicated": 0, "reordered": 0, "damaged": 0 },
            } } })
        });
        let specs = ms.map(|(name, _)| match name {
            "sandbox/native-pair" => Spec::new(name).standing(Standing::Reference),
            _ => Spec::new(name),
        });
        let value = json!({
            "format": FORMAT, "version": VERSION, "tool": "0", "started": "", "seed": 0, "rounds_planned": 2, "rounds": 2,
            "window": { "time": { "warmup_ns": 1, "measure_ns": 1 } }, "fingerprint": Fingerprint::take(), "limits": null,
            "handling": [], "mechanisms": specs, "instances": instances.collect::<Vec<_>>(), "entrants": entrants,
            "refusals": [],
        });
        Record::parse(&value.to_string()).unwrap()
    }

    #[test]
    fn a_pipeline_is_compared_with_the_native_pair_and_the_reference() {
        let record = record([("sandbox/native-pair", [1.0, 2.0]), ("sandbox/flow", [2.0, 2.5])]);
        let text = tables(&record, &ranking::rank(&record));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let first = text.split("\n\n").nth(1).unwrap();
        for said in ["send → receive, 1,000 bytes", "1,001", "63 % (50 to 80)", "216 MiB/s by its milliseconds, 187 as"]
        {
            assert!(first.contains(said), "`{said}` is not in {first}");
        }
        // 1,001,000 bytes in 2.25 ms are 424 MiB/s, or 2.0 times 216.
        assert!(first.contains("424") && first.contains("2.0×"), "{first}");
        let others = text.split("send → checksum, 10,000 bytes").nth(1).unwrap();
        assert!(others.contains("send → two that compete") && !others.contains("the reference"), "{others}");
    }

    #[test]
    fn a_record_without_pipelines_has_no_table() {
        let mut record = record([("sandbox/native-pair", [1.0, 2.0]), ("sandbox/flow", [2.0, 2.5])]);
        record.entrants.iter_mut().for_each(|entrant| entrant.case.cell.pattern = Pattern::Stream);
        assert_eq!(tables(&record, &ranking::rank(&record)), "");
    }
}
