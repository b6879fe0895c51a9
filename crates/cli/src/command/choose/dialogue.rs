//! The questions that `choose` asks in a terminal. The answers are options of the command line.

use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Result};
use estafette_measure::Registry;
use estafette_measure::case::{Load, Pattern, Payload};
use estafette_measure::message::MAX_PRODUCERS;
use estafette_measure::spec::{Standing, Wait};

use crate::args::{Need, ScopeName};

/// Whether questions can be asked: stdin, stdout and stderr are a terminal.
pub(super) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// An answer that can be chosen by its number.
struct Choice {
    words: &'static str,
    /// The value of the option. Empty if the option is left out.
    value: String,
}

fn choice(words: &'static str, value: impl ToString) -> Choice {
    Choice { words, value: value.to_string() }
}

/// What another value is, and whether a text is one.
type OtherValue = (&'static str, fn(&str) -> bool);

/// A question.
struct Prompt {
    words: &'static str,
    /// The option that the answer becomes.
    option: &'static str,
    choices: Vec<Choice>,
    /// The number of the choice that an empty line means, from 1.
    default: usize,
    /// Whether several may be chosen.
    several: bool,
    /// Another value that may be written, and what it is.
    other: Option<OtherValue>,
}

/// Asks the questions. Returns the options, or `None` if the input ends before the last answer.
pub(super) fn ask(
    registry: &Registry,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<Option<Vec<String>>> {
    let mut options = Vec::new();
    let Some(scopes) = put(&scope(), input, output, &mut options)? else { return Ok(None) };
    let scopes: Vec<ScopeName> = scopes.iter().filter_map(|text| text.parse().ok()).collect();
    let Some(pattern) = put(&pattern(registry, &scopes), input, output, &mut options)? else { return Ok(None) };
    let pattern: Option<Pattern> = pattern.first().and_then(|text| text.parse().ok());
    let mut prompts = Vec::new();
    if pattern.is_some_and(Pattern::has_several_parties) {
        prompts.push(producers());
    }
    prompts.push(size());
    if matches!(pattern, Some(Pattern::Stream | Pattern::FanIn)) {
        prompts.push(load());
    }
    prompts.extend([wait(), needs()]);
    for prompt in prompts {
        if put(&prompt, input, output, &mut options)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(options))
}

/// Asks one question until the answer is valid, and adds its option. Returns the values of the
/// answer, or `None` at the end of the input.
fn put(
    prompt: &Prompt,
    input: &mut impl BufRead,
    output: &mut impl Write,
    options: &mut Vec<String>,
) -> Result<Option<Vec<String>>> {
    let mut text = format!("{}\n", prompt.words);
    for (number, choice) in (1..).zip(&prompt.choices) {
        text.push_str(&format!("  {number}) {}\n", choice.words));
    }
    loop {
        write!(output, "{text}Write {} [{}]: ", prompt.how(), prompt.default)
            .and_then(|()| output.flush())
            .context("cannot ask")?;
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line).context("cannot read the answer")? == 0 {
            writeln!(output).context("cannot ask")?;
            return Ok(None);
        }
        match prompt.values(String::from_utf8_lossy(&line).trim()) {
            Ok(values) => {
                if !values.is_empty() {
                    options.extend([format!("--{}", prompt.option), values.join(",")]);
                }
                return Ok(Some(values));
            }
            // The choices stand above.
            Err(error) => text = format!("{error}\n"),
        }
    }
}

impl Prompt {
    /// What can be written.
    fn how(&self) -> String {
        let number = match self.several {
            true => format!("numbers from 1 to {}, with commas between", self.choices.len()),
            false => format!("a number from 1 to {}", self.choices.len()),
        };
        match self.other {
            Some((what, _)) if self.choices.is_empty() => what.to_owned(),
            Some((what, _)) => format!("{number}, or {what}"),
            None => number,
        }
    }

    /// The values that a line chooses, without empty ones.
    ///
    /// # Errors
    /// What can be written instead.
    fn values(&self, line: &str) -> Result<Vec<String>, String> {
        let default = self.default.to_string();
        let line = if line.is_empty() { &default } else { line };
        let parts: Vec<&str> = if self.several { line.split(',').map(str::trim).collect() } else { vec![line] };
        let mut values = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let value = self.value(part).ok_or_else(|| {
                let part: String = part.chars().filter(|c| !c.is_control()).collect();
                format!("`{part}` is not one of the choices.")
            })?;
            if !value.is_empty() && !values.contains(&value) {
                values.push(value);
            }
        }
        Ok(values)
    }

    fn value(&self, part: &str) -> Option<String> {
        let by_number = part.parse().ok().and_then(|number: usize| self.choices.get(number.checked_sub(1)?));
        let known = by_number.or_else(|| self.choices.iter().find(|choice| choice.value == part));
        let other = || self.other.filter(|(_, is_valid)| is_valid(part)).map(|_| part.to_owned());
        known.map(|choice| choice.value.clone()).or_else(other)
    }
}

fn scope() -> Prompt {
    let choices = vec![
        choice("between processes of this machine, in any way", "same-host"),
        choice("between processes, not through the network stack", "process"),
        choice("through the network stack: TCP, UDP, WebSocket, TLS", "network"),
        choice("between threads of one process", "thread"),
        choice("between async tasks of one process", "task"),
        choice("through a function in a WASM sandbox", "sandbox"),
    ];
    let words = "How far do messages travel?";
    Prompt { words, option: "scope", choices, default: 1, several: true, other: None }
}

/// The patterns that a mechanism of these scopes can play.
fn pattern(registry: &Registry, scopes: &[ScopeName]) -> Prompt {
    let is_played = |pattern: Pattern| {
        let specs = registry.iter().map(|entry| entry.spec());
        let mut candidates = specs.filter(|spec| {
            spec.standing == Standing::Candidate && scopes.iter().any(|scope| scope.scopes().contains(&spec.scope))
        });
        candidates.any(|spec| spec.patterns.contains(&pattern))
    };
    let all = [
        ("a request and its reply, one at a time", Pattern::PingPong),
        ("one sender, one receiver, as a stream", Pattern::Stream),
        ("several senders, one receiver", Pattern::FanIn),
        ("several clients with requests to one server", Pattern::RequestReply),
        ("one sender, each message to several receivers", Pattern::PubSub),
    ];
    let played = all.into_iter().filter(|(_, pattern)| is_played(*pattern));
    let mut choices: Vec<Choice> = played.map(|(words, pattern)| choice(words, pattern)).collect();
    choices.push(choice("round trips and streams, both", ""));
    Prompt { words: "Who sends to whom?", option: "pattern", choices, default: 1, several: false, other: None }
}

fn producers() -> Prompt {
    // A choice's number would look like a count, so there are no choices.
    let is_valid = |text: &str| text.parse().is_ok_and(|count: usize| (1..=MAX_PRODUCERS).contains(&count));
    let other: Option<OtherValue> = Some(("a number from 1 to 2048", is_valid));
    Prompt { words: "How many?", option: "producers", choices: Vec::new(), default: 4, several: false, other }
}

fn size() -> Prompt {
    let choices = ["64B", "1KiB", "4KiB", "64KiB", "1MiB"].map(|size| choice(size, size)).into();
    Prompt {
        words: "How long is a message?",
        option: "size",
        choices,
        default: 2,
        several: false,
        other: Some(("a size with its unit such as 100B or 50KiB", |text| {
            // A plain number is the number of a choice.
            text.parse::<usize>().is_err() && matches!(text.parse(), Ok(Payload::Bytes(_)))
        })),
    }
}

fn load() -> Prompt {
    let choices = vec![
        choice("as fast as possible: the time per message is compared", ""),
        choice("1,000 a second: the 99th percentile of the latency is compared, as at every rate", "1k/s"),
        choice("10,000 a second", "10k/s"),
        choice("100,000 a second", "100k/s"),
    ];
    Prompt {
        words: "How many messages, of all senders together?",
        option: "load",
        choices,
        default: 1,
        several: false,
        other: Some(("a rate such as 200k/s", |text| text.parse::<Load>().is_ok_and(|load| load.rate().is_some()))),
    }
}

fn wait() -> Prompt {
    let choices = vec![
        choice("the default: asleep until they are woken; between threads, every way", ""),
        choice("asleep until they are woken", Wait::Block),
        choice("polling for a while, then asleep", Wait::Adaptive),
        choice("polling: fastest, and uses a whole core", Wait::Spin),
    ];
    Prompt { words: "How do the ends wait?", option: "wait", choices, default: 1, several: false, other: None }
}

fn needs() -> Prompt {
    let mut choices = vec![choice("nothing more", "")];
    choices.extend(Need::ALL.map(|need| choice(need.words(), need)));
    Prompt { words: "What must it do?", option: "need", choices, default: 1, several: true, other: None }
}

#[cfg(test)]
mod tests {
    use estafette_measure::entry::pipelines;
    use estafette_measure::{Mechanism, Spec};

    use super::*;

    /// A mechanism that never runs.
    struct Fake(Spec);

    impl Mechanism for Fake {
        fn spec(&self) -> Spec {
            self.0.clone()
        }
    }

    /// Asks, and returns the options and what was printed.
    fn asked(input: &str) -> (Option<String>, String) {
        let all = [Pattern::PingPong, Pattern::Stream, Pattern::FanIn];
        let registry = Registry::new().register(pipelines(Fake(Spec::new("process/a").patterns(&all))));
        let mut output = Vec::new();
        let options = ask(&registry, &mut input.as_bytes(), &mut output).unwrap();
        (options.map(|options| options.join(" ")), String::from_utf8(output).unwrap())
    }

    #[test]
    fn empty_lines_are_the_defaults() {
        let (options, output) = asked("\n\n\n\n\n");
        assert_eq!(options.unwrap(), "--scope same-host --pattern ping-pong --size 1KiB");
        assert!(output.contains("How far do messages travel?\n  1) between") && output.contains("[1]: "), "{output}");
        assert!(!output.contains("several clients"), "nothing runs it here: {output}");
    }

    #[test]
    fn numbers_and_values_are_answers() {
        let (options, _) = asked("2,thread\n3\n64\n50KiB\n200k/s\n4\nno-loss, 3\n");
        let expected = "--scope process,thread --pattern fan-in --producers 64 --size 50KiB --load 200k/s --wait spin \
                        --need no-loss,order";
        assert_eq!(options.unwrap(), expected);
    }

    #[test]
    fn a_wrong_answer_is_asked_again() {
        let (options, output) = asked("9\n0\nfar\u{1b}\n2\n1\n7\n100\n100B\n\n\n");
        assert_eq!(options.unwrap(), "--scope process --pattern ping-pong --size 100B");
        assert!(
            output.contains("`9` is not one of the choices.\nWrite numbers from 1 to 6, with commas between [1]: "),
            "{output}"
        );
        assert!(
            output.contains("`100` is not one of the choices.\nWrite a number from 1 to 5, or a size with its unit"),
            "{output}"
        );
        assert!(!output.contains('\u{1b}'), "{output:?}");
    }

    #[test]
    fn the_end_of_the_input_is_no_answer() {
        for input in ["", "1\n", "1\n1\n1\n1\n"] {
            assert_eq!(asked(input).0, None, "{input:?}");
        }
        // The last line may lack its end.
        assert!(asked("1\n1\n1\n1\n1").0.is_some());
    }
}
