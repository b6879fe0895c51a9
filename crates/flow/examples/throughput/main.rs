//! The race of the reference's three pipelines: each of its rows does the same work, in turn, round
//! after round.
//!
//! `cargo run --release --example throughput -- [ROW...] [ROUNDS] [MESSAGES] [SIZE...]`
//!
//! Without arguments: 5 rounds of 100,000 messages of 1,000, 10,000 and 100,000 bytes, but no more
//! than 1 GB a run, of all rows; with words, of those whose names begin with one of them.
//!
//! The bound is a native pair of processes over the same ring: the sender copies one buffer into it
//! over and over, the receiver copies each message out. A row's figure is the time from the first
//! message to the last, as its receiver prints it. The ratio is that to the native pair of the same
//! round; shown are the median and the span over the rounds.

mod native;
mod pipelines;

use std::process::ExitCode;

use estafette_flow::host;

type Error = Box<dyn std::error::Error>;

/// What receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// One that counts.
    Count,
    /// One that computes the CRC-32 of each message.
    Checksum,
    /// Two that count, and compete.
    Compete,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// The last message, which is marked as such, not counted.
    messages: u64,
    size: usize,
}

/// Who does the work.
#[derive(Clone, Copy, Debug)]
enum Row {
    Native,
    /// Guests of this ABI, by the end of their files' names; in threads of one process, or in
    /// processes.
    Guests {
        abi: &'static str,
        in_threads: bool,
    },
}

/// A pipeline, what it is called, and what the reference published of it.
const PIPELINES: [(Receiver, &str, Option<&[Published; 3]>); 3] = [
    (Receiver::Count, "send → receive", Some(&PUBLISHED)),
    (Receiver::Checksum, "send → checksum", None),
    (Receiver::Compete, "send → two that compete", None),
];

/// A figure of the reference, in MiB/s.
#[derive(Clone, Copy, Debug)]
struct Published {
    /// As it prints it.
    printed: u32,
    /// As its messages and milliseconds give it.
    by_its_time: u32,
}

/// For messages of [`SIZES`].
const PUBLISHED: [Published; 3] = [
    Published { printed: 187, by_its_time: 216 },
    Published { printed: 986, by_its_time: 1202 },
    Published { printed: 431, by_its_time: 476 },
];
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const MOST_BYTES: u64 = 1_000_000_000;

/// The native pair, and the rows whose names begin with one of these words; all of them where there
/// is none.
fn rows(words: &[String]) -> Vec<(String, Row)> {
    let mut rows = vec![("native pair".to_owned(), Row::Native)];
    for (name, abi) in [("batched", ""), ("reference", "_reference"), ("component", "_component")] {
        for (isolation, in_threads) in [("process", false), ("thread", true)] {
            rows.push((format!("{name}, {isolation}"), Row::Guests { abi, in_threads }));
        }
    }
    let is_wanted = |name: &String| words.is_empty() || words.iter().any(|word| name.starts_with(word.as_str()));
    rows.retain(|(name, row)| matches!(row, Row::Native) || is_wanted(name));
    rows
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let first = arguments.nth(1);
    if first.as_deref() == Some(host::ARGUMENT.as_ref()) {
        return host::serve(arguments);
    }
    if first.as_deref() == Some(native::ARGUMENT.as_ref()) {
        native::serve(arguments.map(|argument| argument.to_string_lossy().into_owned()).collect());
        return ExitCode::SUCCESS;
    }
    let arguments = std::env::args().skip(1);
    let (numbers, words): (Vec<String>, Vec<String>) =
        arguments.partition(|argument| argument.starts_with(|first: char| first.is_ascii_digit()));
    let Ok(numbers) = numbers.iter().map(|number| number.parse()).collect::<Result<Vec<u64>, _>>() else {
        eprintln!("usage: throughput [ROW...] [ROUNDS] [MESSAGES] [SIZE...]");
        return ExitCode::from(2);
    };
    match run(&rows(&words), &numbers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throughput: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(rows: &[(String, Row)], numbers: &[u64]) -> Result<(), Error> {
    let rounds = numbers.first().map_or(5, |rounds| (*rounds).max(1) as usize);
    let messages = numbers.get(1).copied().unwrap_or(100_000);
    let sizes = match numbers.get(2..) {
        None | Some([]) => SIZES.to_vec(),
        Some(sizes) => sizes.iter().map(|size| *size as usize).collect(),
    };
    let functions = pipelines::Functions::prepare()?;
    for (receiver, name, published) in PIPELINES {
        for &size in &sizes {
            let load = Load { messages: messages.min(MOST_BYTES / size as u64).max(1), size };
            let reference = published.and_then(|all| Some(all[SIZES.iter().position(|known| *known == size)?]));
            println!("{name}: {} messages of {size} bytes, {rounds} rounds", load.messages + 1);
            if let Some(Published { printed, by_its_time }) = reference {
                println!("  the reference: {printed} MiB/s as it prints it, {by_its_time} MiB/s by its milliseconds");
            }
            race(rows, &functions, receiver, load, rounds, reference)?;
        }
    }
    Ok(())
}

fn race(
    rows: &[(String, Row)],
    functions: &pipelines::Functions,
    receiver: Receiver,
    load: Load,
    rounds: usize,
    reference: Option<Published>,
) -> Result<(), Error> {
    let mut times: Vec<Vec<f64>> = rows.iter().map(|_| Vec::new()).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for &at in &order {
            let ms = match rows[at].1 {
                Row::Native => native::run(receiver, load)?,
                Row::Guests { abi, in_threads } => functions.run(receiver, load, abi, in_threads)?,
            };
            times[at].push(ms);
        }
    }
    let native = times[0].clone();
    for ((name, _), times) in rows.iter().zip(&times) {
        let ms = median(times.clone());
        let speed = (load.messages + 1) as f64 * load.size as f64 * 1000.0 / ms / (1 << 20) as f64;
        let ratios: Vec<f64> = native.iter().zip(times).map(|(native, ms)| 100.0 * native / ms).collect();
        let (least, most) = ratios.iter().fold((f64::MAX, 0.0f64), |(least, most), it| (least.min(*it), most.max(*it)));
        let beside =
            reference.map(|reference| format!(", {:.1} x the reference", speed / f64::from(reference.by_its_time)));
        println!(
            "  {name:18} {ms:8.0} ms {speed:8.0} MiB/s  {:4.0} % of the native pair ({least:.0} to {most:.0}){}",
            median(ratios.clone()),
            beside.unwrap_or_default(),
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
