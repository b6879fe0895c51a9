//! A second process that a test exchanges lines with.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::PATIENCE;

/// A process and its output lines. Dropping it kills the process.
pub struct Process {
    pub child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub fn start(command: &mut Command) -> Process {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Process { child, lines }
    }

    /// The rest of the next line that starts with this word.
    pub fn line(&self, word: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it never says {word:?}"));
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        self.child.kill().ok();
        self.child.wait().unwrap();
    }
}
