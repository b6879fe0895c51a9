//! The command `gate`: fails if a case became slower by more than `--allow` from one record to
//! another. For continuous integration.

mod format;
mod judgement;

use std::path::Path;

use anyhow::{Context, Result};
use estafette_measure::record::Record;
use serde::Serialize;

use self::judgement::{Judgement, Outcome};
use crate::args::{Gate, GateFormat};
use crate::exit::Exit;
use crate::{print, print_json};

/// The JSON output.
#[derive(Serialize)]
struct Printed<'a> {
    base_file: &'a Path,
    new_file: &'a Path,
    #[serde(flatten)]
    judgement: &'a Judgement,
}

/// Runs `gate`.
pub(crate) fn run(args: &Gate) -> Result<Exit> {
    let (base, new) = (Record::load(&args.base)?, Record::load(&args.new)?);
    let judgement = Judgement::of(&base, &new, args.allow)
        .with_context(|| format!("cannot compare {} with {}", args.base.display(), args.new.display()))?;
    match args.format() {
        GateFormat::Text => print(&format::text(&judgement))?,
        GateFormat::Markdown => print(&format::markdown(&judgement))?,
        GateFormat::Junit => print(&format::junit(&judgement))?,
        GateFormat::Json => {
            print_json(&Printed { base_file: &args.base, new_file: &args.new, judgement: &judgement })?;
        }
    }
    Ok(match judgement.outcome {
        Outcome::Fine => Exit::Fine,
        Outcome::Slower | Outcome::Failed => Exit::GateFailed,
        Outcome::Undecided => Exit::Undecided,
        Outcome::Broken => Exit::Breach,
    })
}
