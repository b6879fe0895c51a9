//! The command `choose`: answers which mechanism to use for a need, from a short run made for the
//! question or from a record.

mod answer;
mod dialogue;
mod exclusion;
mod question;
#[cfg(test)]
mod questions;
mod short_run;
mod start;
mod together;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;
use estafette_measure::Registry;
use estafette_measure::ranking::rank;
use estafette_measure::record::Record;
use estafette_measure::run::Completion;
use serde::Serialize;

use self::answer::{Answer, MAX_NAMES};
use self::exclusion::Excluded;
use self::question::Question;
use self::short_run::ShortRun;
use self::together::Together;
use crate::args::{Args, Choose, Command};
use crate::columns::wrapped;
use crate::exit::Exit;
use crate::measurement::{self, Measurement, RunOptions, measure, report_interrupt};
use crate::progress::View;
use crate::terminal::{print, print_json, report_to_stderr};

/// The reply to a question: the JSON output.
#[derive(Debug, Serialize)]
struct Reply {
    /// The record that it comes from. `None` if nothing was measured, because no mechanism can be
    /// the answer.
    record: Option<PathBuf>,
    /// How the cells differ from what was asked.
    notes: Vec<String>,
    /// The answer of each table.
    answers: Vec<Answer>,
    /// The answers over tables that differ in the scope or the wait mode.
    together: Vec<Together>,
    /// The mechanisms that were not measured, each with the reason.
    excluded: Vec<Excluded>,
}

/// Runs `choose`.
pub(crate) fn run(registry: &Registry, args: &Choose) -> Result<Exit> {
    let is_from_record = args.record.is_some() || args.dir.is_some();
    if is_from_record || !args.is_without_question() {
        return reply(registry, args);
    }
    if !dialogue::is_possible() {
        bail!(
            "no question is given, and the dialogue needs a terminal. Give the question as options, such as \
             `estafette choose --scope process --pattern ping-pong --size 1KiB`, or a record with --record; \
             see `estafette choose --help`"
        );
    }
    let Some(options) = dialogue::ask(registry, &mut io::stdin().lock(), &mut io::stderr().lock())? else {
        bail!(
            "the input ended before the last answer: answer each question, or give options, see `estafette choose --help`"
        );
    };
    report_to_stderr(&format!("The same without questions:\n  estafette choose {}\n", options.join(" ")));
    let parsed = Args::try_parse_from(["estafette", "choose"].into_iter().map(String::from).chain(options))?;
    let Command::Choose(asked) = parsed.command else {
        bail!("internal error: the answers of the dialogue are no command `choose`")
    };
    reply(registry, &Choose { json: args.json, out: args.out.clone(), budget: args.budget, seed: args.seed, ..*asked })
}

/// Answers the question of the options, and prints the reply.
fn reply(registry: &Registry, args: &Choose) -> Result<Exit> {
    let question = Question::of(args)?;
    let (reply, measured) = match source(args)? {
        Some(path) => {
            let record = Record::load(&path)?;
            question.check_names(&record).with_context(|| format!("{} has no answer", path.display()))?;
            (Reply::of(&record, path, &question, Vec::new(), Vec::new())?, Exit::Fine)
        }
        None => {
            let ShortRun { plan, excluded, notes } = ShortRun::plan(registry, args, &question)?;
            let Some(plan) = plan else { return Reply::without_run(notes, excluded).print(args.json) };
            let Some(measurement) = measure(registry, plan, &args.out, RunOptions::new(View::Plain))? else {
                return Ok(Exit::Interrupted);
            };
            let Some((record, path, exit)) = finished(measurement, args.json)? else { return Ok(Exit::Interrupted) };
            (Reply::of(&record, path, &question, excluded, notes)?, exit)
        }
    };
    let exit = reply.print(args.json)?;
    // A broken promise outranks an answer. A failed mechanism is excluded, and the reply says so.
    Ok(if measured == Exit::Breach { measured } else { exit })
}

/// The record that the options name. `None` if a short run is to answer.
fn source(args: &Choose) -> Result<Option<PathBuf>> {
    match (&args.record, &args.dir) {
        (Some(record), _) => Ok(Some(record.clone())),
        (None, Some(dir)) => newest_record(dir).map(Some),
        (None, None) => Ok(None),
    }
}

/// Saves a short run's record, and returns it. `None` if the user interrupted the run.
fn finished(measurement: Measurement, is_quiet: bool) -> Result<Option<(Record, PathBuf, Exit)>> {
    let Measurement { record, files, end } = measurement;
    let exit = measurement::exit(&record);
    files.finish(&record)?;
    if !is_quiet {
        report_to_stderr(&format!("record: {}", files.record.display()));
    }
    match end? {
        Completion::Complete => Ok(Some((record, files.record, exit))),
        Completion::Interrupted => {
            report_interrupt(&record);
            Ok(None)
        }
    }
}

/// Returns the newest record that `bench` wrote to a folder. Their names begin with their time.
/// Files that are no records are skipped with a warning.
fn newest_record(dir: &Path) -> Result<PathBuf> {
    let remedy = "run `estafette bench` first, name a record with --record, or leave --dir out to measure";
    let files = fs::read_dir(dir).with_context(|| format!("cannot read the folder {}; {remedy}", dir.display()))?;
    let is_json = |path: &PathBuf| path.extension().is_some_and(|end| end == "json") && path.is_file();
    let mut files: Vec<PathBuf> = files.flatten().map(|file| file.path()).filter(is_json).collect();
    files.sort();
    for file in files.into_iter().rev() {
        match Record::load(&file) {
            Ok(_) => return Ok(file),
            Err(error) => report_to_stderr(&format!("warning: skipped: {error:#}")),
        }
    }
    bail!("there is no record in {}; {remedy}", dir.display())
}

impl Reply {
    fn of(
        record: &Record,
        path: PathBuf,
        question: &Question,
        excluded: Vec<Excluded>,
        notes: Vec<String>,
    ) -> Result<Reply> {
        let rankings = rank(record);
        let found = question.find(&rankings).with_context(|| format!("{} has no answer", path.display()))?;
        let answers: Vec<Answer> =
            found.rankings.iter().map(|ranking| Answer::of(ranking, question, record, &rankings)).collect();
        let together = Together::all(&answers, &found.rankings, record);
        let notes = [notes, found.notes].concat();
        Ok(Reply { record: Some(path), notes, answers, together, excluded })
    }

    fn without_run(notes: Vec<String>, excluded: Vec<Excluded>) -> Reply {
        Reply { record: None, notes, answers: Vec::new(), together: Vec::new(), excluded }
    }

    /// Prints the reply. Returns whether it is decided.
    fn print(&self, json: bool) -> Result<Exit> {
        if json {
            print_json(self)?
        } else {
            print(&self.text())?
        }
        // Over several tables that answer one question, one answer counts.
        let is_covered = |answer: &Answer| self.together.iter().any(|together| together.covers(answer));
        let mut alone = self.answers.iter().filter(|answer| !is_covered(answer));
        let is_decided = !self.answers.is_empty()
            && self.together.iter().all(|together| together.certainty.is_decided())
            && alone.all(Answer::is_decided);
        Ok(if is_decided { Exit::Fine } else { Exit::Undecided })
    }

    fn text(&self) -> String {
        let mut text: String = self.notes.iter().map(|note| wrapped("", note)).collect();
        if self.answers.is_empty() {
            text.push_str("No mechanism can be the answer, so nothing was measured.\n");
        }
        text.extend(self.together.iter().map(Together::text));
        text.extend(self.answers.iter().map(Answer::text));
        let excluded = exclusion::text(&self.excluded, if self.answers.is_empty() { usize::MAX } else { MAX_NAMES });
        if !excluded.is_empty() {
            text.push_str(&format!("Not measured:\n{excluded}"));
        }
        text.extend(self.record.iter().map(|path| format!("From {}\n", path.display())));
        text
    }
}
