//! The command `gate`: fails if a case became slower by more than `--allow`, from one record to
//! another or from another build to this one. For continuous integration.

#[cfg(test)]
mod error_rates;
mod format;
mod judgement;
mod rerun;

use std::path::Path;

use anyhow::{Context, Result, bail};
use estafette_measure::Registry;
use estafette_measure::record::Record;
use serde::Serialize;

use self::judgement::{GateOutcome, Judgement};
use crate::args::{Gate, GateFormat};
use crate::exit::Exit;
use crate::terminal::{print, print_json};

/// The JSON output.
#[derive(Serialize)]
struct PrintedJudgement<'a> {
    /// The two records; the other build of `--rerun`.
    base_file: &'a Path,
    new_file: Option<&'a Path>,
    #[serde(flatten)]
    judgement: &'a Judgement,
}

/// Runs `gate`.
pub(crate) fn run(registry: &Registry, args: &Gate) -> Result<Exit> {
    match (&args.rerun, &*args.what) {
        (Some(program), _) => match rerun::run(registry, args, program)? {
            Some(judgement) => print_judgement(args, &judgement, program, None),
            None => Ok(Exit::Interrupted),
        },
        (None, [base, new]) => {
            let (base, new) = (Path::new(base), Path::new(new));
            let judgement = Judgement::of(&Record::load(base)?, &Record::load(new)?, args.allow)
                .with_context(|| format!("cannot compare {} with {}", base.display(), new.display()))?;
            print_judgement(args, &judgement, base, Some(new))
        }
        (None, others) => bail!(
            "{} records are given: name two, `estafette gate BASE.json NEW.json`, or give another build with --rerun",
            others.len()
        ),
    }
}

fn print_judgement(args: &Gate, judgement: &Judgement, base_file: &Path, new_file: Option<&Path>) -> Result<Exit> {
    match args.format() {
        GateFormat::Text => print(&format::text(judgement))?,
        GateFormat::Markdown => print(&format::markdown(judgement))?,
        GateFormat::Junit => print(&format::junit(judgement))?,
        GateFormat::Json => print_json(&PrintedJudgement { base_file, new_file, judgement })?,
    }
    Ok(match judgement.outcome {
        GateOutcome::Fine => Exit::Fine,
        GateOutcome::Slower | GateOutcome::Failed => Exit::GateFailed,
        GateOutcome::Undecided => Exit::Undecided,
        GateOutcome::Broken => Exit::Breach,
    })
}
