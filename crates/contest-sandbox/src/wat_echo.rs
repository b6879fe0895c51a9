//! A WASM function, written as text and compiled by wasmtime, that copies each message inside its
//! sandbox.
//!
//! The sandbox is a broker: a process between the ends. It reads a message from a UNIX socket
//! directly into the guest's memory, calls the guest, and writes the guest's copy to the next
//! socket. In a ping-pong the copy returns to the producer, in a stream it goes to the consumer.
//! The receiver verifies every byte, so the guest must have copied all of them.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use estafette_contest_common::byte_stream::{Reading, Writing};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::usage::Usage;
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};
use wasmtime::{Engine, Instance, Memory, Module, Store, TypedFunc};

use super::rows;

const PAGE: usize = 64 * 1024;
/// A quarter of a 32-bit address space: enough for two copies of a message and more.
const MAX_MESSAGE: usize = 1 << 30;

/// `sandbox/wat-echo`.
#[derive(Debug)]
pub struct WatEcho;

impl Mechanism for WatEcho {
    fn spec(&self) -> Spec {
        Spec::new("sandbox/wat-echo")
            .version(concat!("wasmtime ", env!("LOCKED_WASMTIME")))
            .implementation("a WAT function in wasmtime, UNIX stream sockets in and out")
            .max_message(MAX_MESSAGE)
            .tier(Tier::Suite)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        rows::roles(case)
    }

    fn broker(&self, case: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        let mut guest = Guest::new(case.payload.len())?;
        let (mut input, theirs) = UnixStream::pair()?;
        rendezvous.publish_descriptors("in", &[theirs.as_fd()])?;
        drop(theirs);
        let mut output = if case.pattern == Pattern::PingPong {
            input.try_clone()?
        } else {
            let (output, theirs) = UnixStream::pair()?;
            rendezvous.publish_descriptors("out", &[theirs.as_fd()])?;
            output
        };
        rendezvous.wait_at_barrier()?;
        while guest.read_from(&mut input)? {
            output.write_all(guest.echo()?).context("passing a message on")?;
        }
        Ok(Usage::default())
    }
}

impl Transport<Raw> for WatEcho {
    type Tx = Writing<UnixStream>;
    type Rx = Reading<UnixStream>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let end = if let Role::Consumer(_) = role { "out" } else { "in" };
        let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors(end)?;
        let socket = UnixStream::from(socket);
        let len = case.payload.len();
        let (tx, rx) = (Writing::new(socket.try_clone()?, len), Reading::new(socket, len));
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// The function in its sandbox, with space for a message in its memory.
struct Guest {
    store: Store<()>,
    memory: Memory,
    function: TypedFunc<(u32, u32), u32>,
    len: usize,
}

impl Guest {
    fn new(len: usize) -> Result<Guest> {
        // The message is at address 0, its copy begins at the next free page.
        let copy = len.next_multiple_of(PAGE);
        let pages = 2 * copy / PAGE;
        let text = format!(
            r#"(module
                 (memory (export "memory") {pages})
                 (func (export "echo") (param $from i32) (param $len i32) (result i32)
                   (memory.copy (i32.const {copy}) (local.get $from) (local.get $len))
                   (i32.const {copy})))"#
        );
        let load = || -> wasmtime::Result<Guest> {
            let engine = Engine::default();
            let module = Module::new(&engine, text)?;
            let mut store = Store::new(&engine, ());
            let instance = Instance::new(&mut store, &module, &[])?;
            let function = instance.get_typed_func(&mut store, "echo")?;
            let memory = instance
                .get_memory(&mut store, "memory")
                .ok_or_else(|| wasmtime::Error::msg("the guest exports no memory"))?;
            Ok(Guest { store, memory, function, len })
        };
        load().map_err(|error| anyhow::anyhow!("starting the guest: {error:?}"))
    }

    /// Reads one message into the guest's memory. Returns false at the end of the stream.
    fn read_from(&mut self, input: &mut impl Read) -> Result<bool> {
        let place =
            self.memory.data_mut(&mut self.store).get_mut(..self.len).context("the guest's memory is too small")?;
        let mut filled = 0;
        while filled < place.len() {
            match input.read(&mut place[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => bail!("the stream ended within a message"),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A peer that closes with a reply unread resets the connection. This is the end of
                // the stream.
                Err(error) if error.kind() == ErrorKind::ConnectionReset && filled == 0 => return Ok(false),
                Err(error) => return Err(io::Error::into(error)),
            }
        }
        Ok(true)
    }

    /// Calls the guest, and returns its copy of the message.
    fn echo(&mut self) -> Result<&[u8]> {
        let called = self.function.call(&mut self.store, (0, self.len as u32));
        let at = called.map_err(|error| anyhow::anyhow!("the guest trapped: {error:?}"))? as usize;
        let memory = self.memory.data(&self.store);
        memory.get(at..at + self.len).context("the guest returned an address outside its memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_copies_whole_messages() {
        for len in [1, 64, PAGE - 1, PAGE, PAGE + 1] {
            let message: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut guest = Guest::new(len).unwrap();
            let mut input = &message[..];
            assert!(guest.read_from(&mut input).unwrap());
            assert_eq!(guest.echo().unwrap(), message);
            assert!(!guest.read_from(&mut input).unwrap());
        }
    }

    #[test]
    fn half_a_message_is_an_error() {
        let mut guest = Guest::new(8).unwrap();
        assert!(guest.read_from(&mut &[1u8, 2, 3][..]).is_err());
    }
}
