//! The command `report`: prints the tables of a record.

use anyhow::Result;
use estafette_measure::record::Record;

use crate::args::Report;
use crate::exit::Exit;
use crate::output::{self, Detail};
use crate::{print, print_json};

/// Runs `report`.
pub(crate) fn run(args: &Report) -> Result<Exit> {
    let record = Record::load(&args.record)?;
    if args.json {
        print_json(&record)?;
    } else {
        print(&output::report(&record, Detail::of(args.details)))?;
    }
    Ok(Exit::Fine)
}
