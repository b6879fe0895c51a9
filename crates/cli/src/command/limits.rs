//! The command `limits`: measures the machine's own limits.

use anyhow::Result;
use estafette_measure::limits::{
    CopyBandwidth, DEFAULT_BUDGET, LimitRow, Limits, Unit, available_cpus, end_cpus, measure,
};
use estafette_measure::units;

use crate::args;
use crate::columns::{Left, Right, columns};
use crate::exit::Exit;
use crate::terminal::{print, print_json, report_to_stderr};

/// Runs `limits`.
pub(crate) fn run(args: &args::Limits) -> Result<Exit> {
    let time = units::duration(DEFAULT_BUDGET.as_nanos() as f64);
    report_to_stderr(&format!("measuring for {time}: do not use the machine meanwhile"));
    let limits = measure(&end_cpus(&available_cpus()), DEFAULT_BUDGET, &mut |_| Ok(()))?;
    if args.json {
        print_json(&limits)?;
    } else {
        print(&tables(&limits))?;
    }
    Ok(Exit::Fine)
}

fn tables(limits: &Limits) -> String {
    let cpus = match limits.cpus[..] {
        [home, away, ..] => format!("CPUs {home} and {away}"),
        _ => String::from("One CPU: limits that need two are left out"),
    };
    // Copying has its own table, by size.
    let rows: Vec<_> = limits.rows().into_iter().filter(|row| row.unit != Unit::BytesPerSecond).map(figure).collect();
    let sizes: Vec<_> = limits.copy.iter().map(copying).collect();
    format!(
        "{cpus}\n\n{}\n{}",
        columns(&["limit", "figure", "note"], &[Left, Right, Left], &rows),
        columns(
            &["copying messages of", "within a core", "across cores", "written ahead"],
            &[Left, Right, Right, Right],
            &sizes
        ),
    )
}

fn figure(row: LimitRow) -> Vec<String> {
    let value = match row.unit {
        Unit::Ns => units::duration(row.value),
        Unit::BytesPerSecond => units::bandwidth(row.value),
        Unit::Count => units::grouped(row.value as u64),
    };
    vec![row.name.to_owned(), value, row.note]
}

fn copying(copy: &CopyBandwidth) -> Vec<String> {
    let across = copy.cross_core_bytes_per_s.map_or(String::from("-"), units::bandwidth);
    let ahead = copy.cross_core_ahead_bytes.map_or(String::from("-"), |ahead| units::size(ahead as usize));
    vec![units::size(copy.size_bytes as usize), units::bandwidth(copy.same_core_bytes_per_s), across, ahead]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_tables_contain_every_figure() {
        for cpus in [end_cpus(&available_cpus()), vec![available_cpus()[0]]] {
            let limits = measure(&cpus, Duration::from_millis(50), &mut |_| Ok(())).unwrap();
            let text = tables(&limits);
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
            for row in limits.rows().iter().filter(|row| row.unit != Unit::BytesPerSecond) {
                assert!(text.contains(row.name), "{} in {text}", row.name);
            }
            for copy in &limits.copy {
                assert!(copying(copy).iter().all(|cell| text.contains(cell)), "{text}");
            }
        }
    }
}
