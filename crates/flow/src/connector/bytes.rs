//! Sources and sinks of byte streams: standard input and output, and files.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

use super::inlet::Inlet;
use super::outlet::{Next, Outlet, Stop, Waited};
use crate::config::{Framing, Layout};

/// Reads standard input as messages.
pub(super) fn read_stdin(framing: Framing, outlet: &mut Outlet) -> Result<()> {
    // Unbuffered: the wait asks the kernel whether there is input, so all unread input must be in
    // the kernel.
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned().context("cannot read standard input")?);
    let stop = Arc::clone(&outlet.stop);
    send_framed(Stoppable { file: stdin, stop }, framing, outlet).context("cannot read standard input")
}

/// Reads a file as messages.
pub(super) fn read_file(path: &Path, framing: Framing, outlet: &mut Outlet) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    send_framed(file, framing, outlet).with_context(|| format!("cannot read {}", path.display()))
}

/// A file whose reads return the end of the file once the source must stop.
struct Stoppable {
    file: File,
    stop: Arc<Stop>,
}

impl Read for Stoppable {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stop.wait(Some(&self.file), None)? {
                Waited::Stopped => return Ok(0),
                Waited::Readable => return self.file.read(buffer),
                Waited::TimedOut => {}
            }
        }
    }
}

fn send_framed(bytes: impl Read, framing: Framing, outlet: &mut Outlet) -> Result<()> {
    match framing {
        Framing::Lines => send_lines(BufReader::with_capacity(64 << 10, bytes), outlet),
        Framing::Whole => send_whole(bytes, outlet),
    }
}

fn send_lines(mut bytes: impl BufRead, outlet: &mut Outlet) -> Result<()> {
    let most = outlet.max_message() as u64;
    let mut line = Vec::new();
    loop {
        line.clear();
        // A line is too long if one byte more than allowed, and the line feed, are not enough.
        let count = bytes.by_ref().take(most.saturating_add(2)).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(());
        }
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        if line.len() as u64 > most {
            let rest = if is_whole { 0 } else { skip_line(&mut bytes)? };
            outlet.too_long(line.len() + rest);
        } else if outlet.send(&line)? == Next::Stop {
            return Ok(());
        }
    }
}

/// Skips the rest of a line, whatever its length. Returns the number of skipped bytes.
fn skip_line(bytes: &mut impl BufRead) -> io::Result<usize> {
    let mut skipped = 0;
    loop {
        let some = match bytes.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            some => some?,
        };
        let end = some.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(some.len(), |end| end + 1);
        bytes.consume(count);
        skipped += count;
        if end.is_some() || count == 0 {
            return Ok(skipped);
        }
    }
}

fn send_whole(bytes: impl Read, outlet: &mut Outlet) -> Result<()> {
    let most = outlet.max_message();
    let mut message = Vec::new();
    bytes.take((most as u64).saturating_add(1)).read_to_end(&mut message)?;
    if message.len() > most {
        outlet.too_long(message.len());
    } else {
        let _ = outlet.send(&message)?;
    }
    Ok(())
}

/// Writes messages to standard output.
pub(super) fn write_stdout(layout: Layout, inlet: &mut Inlet) -> Result<()> {
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned().context("cannot write standard output")?);
    write_file(stdout, layout, inlet).context("cannot write standard output")
}

/// Opens a file to write messages to.
pub(super) fn create(path: &Path, append: bool) -> Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(append).truncate(!append);
    options.open(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes messages to a file. They are acknowledged once the system has accepted them.
pub(super) fn write_file(file: File, layout: Layout, inlet: &mut Inlet) -> Result<()> {
    let mut file = BufWriter::with_capacity(64 << 10, file);
    let write = |file: &mut BufWriter<File>, message: &[u8]| -> Result<()> {
        file.write_all(message)?;
        if layout == Layout::Lines {
            file.write_all(b"\n")?;
        }
        Ok(())
    };
    let done = inlet.for_each(&mut file, write, |file| Ok(file.flush()?));
    match done {
        // The reader has closed the pipe, as with `| head -1`, since it has all it needs.
        Err(error) if is_broken_pipe(&error) => {
            // Discards the buffer, as another write would fail too.
            let _ = file.into_parts();
            Ok(())
        }
        done => done,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
