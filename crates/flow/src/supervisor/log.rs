//! The log: copies the output of functions line by line, with a limit per stream.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

/// The maximum length of a line in bytes. The rest is cut off.
const MAX_LINE: usize = 4096;
/// The maximum number of lines per stream and second. Further lines are counted and dropped.
const LINES_A_SECOND: u32 = 1000;

/// The stdout or stderr of a function.
pub(super) struct Stream<R> {
    pipe: R,
    name: String,
    is_error: bool,
    line: Vec<u8>,
    /// Whether the current line is longer than the part that is kept.
    is_cut: bool,
    window: Instant,
    lines: u32,
    suppressed: u64,
}

/// The state of a stream after a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    /// It is open; there may be more to read.
    Open,
    /// All writers have closed it.
    Ended,
}

impl<R: Read> Stream<R> {
    /// A stream that reads from a non-blocking pipe.
    pub(super) fn new(pipe: R, name: &str, is_error: bool) -> Stream<R> {
        let (name, line) = (name.to_owned(), Vec::new());
        Stream { pipe, name, is_error, line, is_cut: false, window: Instant::now(), lines: 0, suppressed: 0 }
    }

    /// The pipe.
    pub(super) fn pipe(&self) -> &R {
        &self.pipe
    }

    /// Reads available bytes and logs their lines. Reads a bounded amount, so that one stream does
    /// not block the others.
    pub(super) fn read(&mut self) -> StreamState {
        let mut buffer = [0; 64 << 10];
        match self.pipe.read(&mut buffer) {
            Ok(count) if count > 0 => {
                self.take(&buffer[..count]);
                StreamState::Open
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => StreamState::Open,
            _ => {
                self.end();
                StreamState::Ended
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (part, is_end) = part.strip_suffix(b"\n").map_or((part, false), |part| (part, true));
            let space = MAX_LINE - self.line.len();
            self.is_cut |= part.len() > space;
            self.line.extend_from_slice(&part[..part.len().min(space)]);
            if is_end {
                self.log_line();
            }
        }
    }

    /// Logs an unfinished line, and the number of dropped lines.
    pub(super) fn end(&mut self) {
        if !self.line.is_empty() {
            self.log_line();
        }
        self.report_suppressed();
    }

    fn log_line(&mut self) {
        if self.window.elapsed() >= Duration::from_secs(1) {
            self.report_suppressed();
            (self.window, self.lines) = (Instant::now(), 0);
        }
        self.lines += 1;
        if self.lines > LINES_A_SECOND {
            self.suppressed += 1;
        } else {
            let text = printable(&self.line);
            let end = if self.is_cut { "…" } else { "" };
            let function = self.name.as_str();
            if self.is_error {
                tracing::warn!(target: "function", function, "{text}{end}");
            } else {
                tracing::info!(target: "function", function, "{text}{end}");
            }
        }
        self.line.clear();
        self.is_cut = false;
    }

    fn report_suppressed(&mut self) {
        if self.suppressed > 0 {
            let (function, lines) = (self.name.as_str(), self.suppressed);
            tracing::warn!(
                function,
                lines,
                "it prints more than {LINES_A_SECOND} lines a second: {lines} are left out"
            );
            self.suppressed = 0;
        }
    }
}

/// Escapes control characters, on which a terminal would act.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.strip_suffix('\r').unwrap_or(&text);
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\t' {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_reach_the_terminal_raw() {
        assert_eq!(printable(b"a\tb\x1b[31m\xff\r"), "a\tb\\u{1b}[31m\u{fffd}");
    }

    #[test]
    fn a_long_line_is_cut_and_a_flood_is_counted() {
        let flood = [vec![b'x'; MAX_LINE + 10], b"\n".repeat(LINES_A_SECOND as usize + 5)].concat();
        let mut stream = Stream::new(&flood[..], "f", false);
        let mut buffer = flood.clone();
        buffer.truncate(MAX_LINE + 10);
        stream.take(&buffer);
        assert_eq!((stream.line.len(), stream.is_cut), (MAX_LINE, true));
        stream.take(&b"\n".repeat(LINES_A_SECOND as usize + 5));
        assert_eq!((stream.line.len(), stream.suppressed), (0, 5));
    }
}
