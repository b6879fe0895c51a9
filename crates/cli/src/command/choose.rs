//! The command `choose`: answers from a record which mechanism to use for a need.

mod answer;
mod question;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use estafette_measure::ranking::rank;
use estafette_measure::record::Record;

use self::answer::Answer;
use self::question::Question;
use crate::args::Choose;
use crate::columns::wrapped;
use crate::exit::Exit;
use crate::{print, print_json};

/// Runs `choose`.
pub(crate) fn run(args: &Choose) -> Result<Exit> {
    let path = match &args.record {
        Some(path) => path.clone(),
        None => newest_record(&args.dir)?,
    };
    let record = Record::load(&path)?;
    let rankings = rank(&record);
    let question = Question::of(args);
    let found = question.find(&rankings).with_context(|| format!("{} has no answer", path.display()))?;
    let answers: Vec<Answer> = found.rankings.iter().map(|ranking| Answer::of(ranking, &question)).collect();
    if args.json {
        print_json(&answers)?;
    } else {
        let notes: String = found.notes.iter().map(|note| wrapped("", note)).collect();
        let answers: Vec<String> = answers.iter().map(Answer::text).collect();
        print(&format!("{notes}{}From {}\n", answers.join(""), path.display()))?;
    }
    let is_decided = answers.iter().all(Answer::is_decided);
    Ok(if is_decided { Exit::Fine } else { Exit::Undecided })
}

/// Returns the newest record that `bench` wrote to a folder. Their names begin with their time.
fn newest_record(dir: &Path) -> Result<PathBuf> {
    let remedy = "run `estafette bench` first, or name a record with --record";
    let files = fs::read_dir(dir).with_context(|| format!("cannot read the folder {}; {remedy}", dir.display()))?;
    let records =
        files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
    match records.max() {
        Some(newest) => Ok(newest),
        None => bail!("there is no record in {}; {remedy}", dir.display()),
    }
}
