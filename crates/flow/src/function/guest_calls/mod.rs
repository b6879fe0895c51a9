//! Fuzz target for the calls of a guest: a guest may do anything, and the host must not panic. The
//! test here runs some thousand inputs; `fuzz/` searches for more.
//!
//! The guest is a module that executes a script in its memory: it sends from any address, at any
//! time, and traps, exits or grows its memory in between. Its host is the real one, with rings that
//! nobody else uses. A model of the ABI predicts the result of each call. After each call, the
//! results and effects of both are compared.
//!
//! | file | content |
//! |---|---|
//! | `script.rs` | the guest's script, decoded from any bytes |
//! | `model.rs` | the expected results and effects |
//! | `batched.wat`, `reference.wat`, `interpreter.wat` | the guest |

mod model;
mod script;

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};

use estafette_ipc::WaitMode;
use estafette_ipc::group::{BellFile, Claim, Interrupt, Member, Publisher, RingFile, record_len};
use rustix::fs::{MemfdFlags, memfd_create};
use wasmtime::Engine;

use self::model::{Fault, Model, Topic};
use self::script::{MAX_MESSAGES, MAX_PAGES, PAGE, PATTERN, PATTERN_END, Script};
use super::{Failure, Function, Output, Outputs, Setup, StopSignal};
use crate::control::Overflow;
use crate::counters::{Counter, Counters};
use crate::engine::inspect::{Abi, inspect};
use crate::engine::wasi::Grants;

/// The maximum number of bytes that are claimed at once, unless one message is longer.
const BATCH_BYTES: usize = 128 << 10;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// The guest executed its whole script.
    Finished,
    /// It was stopped while it waited for space.
    Stopped,
    /// It exited.
    Exited,
    /// It trapped, or broke the ABI.
    Trapped,
}

/// Runs the guest of an input. Checks that each call ends as the ABI specifies, sends what lies in
/// the guest's memory, and changes only the memory that it may change. The host can then run the
/// next guest.
pub fn run(input: &[u8]) -> Ended {
    let script = Script::decode(input);
    let mut host = Host::new(&script);
    let mut model = Model::new(&script, topics(), &GUESTS.pattern);
    match both(&script, &mut host, &mut model) {
        Ok(()) => Ended::Finished,
        Err(Fault::Stopped) => Ended::Stopped,
        Err(Fault::Exited(_)) => Ended::Exited,
        Err(Fault::Trapped(_)) => Ended::Trapped,
    }
}

/// Runs the script in the host and in the model, up to the first call that fails.
fn both(script: &Script, host: &mut Host, model: &mut Model) -> Result<(), Fault> {
    let expected = model.load();
    let loaded = Function::load(&host.setup, host.outputs.take().expect("they are taken once"));
    assert_same(&loaded.as_ref().map(drop), &expected);
    expected?;
    let mut function = loaded.expect("it was as expected");
    let expected = model.start();
    assert_same(&function.start().as_ref().map(drop), &expected);
    host.assert_effects(&function, model);
    expected?;
    for lengths in &script.deliveries {
        let mut member = host.publish(lengths);
        while let Some(claim) = member.try_claim(BATCH_BYTES, usize::MAX).expect("the ring is sound") {
            let expected = deliver(script.abi, model, &claim);
            assert_same(&function.deliver(&claim).as_ref().map(drop), &expected);
            host.assert_effects(&function, model);
            expected?;
            claim.ack();
        }
    }
    Ok(())
}

fn deliver(abi: Abi, model: &mut Model, claim: &Claim<'_>) -> Result<(), Fault> {
    match abi {
        Abi::Reference => claim.messages().try_for_each(|message| model.deliver_message(&message)),
        _ => model.deliver_batch(claim.bytes()),
    }
}

fn assert_same(actual: &Result<(), &Failure>, expected: &Result<(), Fault>) {
    let is_same = match (actual, expected) {
        (Ok(()), Ok(())) | (Err(Failure::Stopped), Err(Fault::Stopped)) => true,
        (Err(Failure::Exited(actual)), Err(Fault::Exited(expected))) => actual == expected,
        (Err(Failure::Trapped(reason)), Err(Fault::Trapped(part))) => reason.contains(&**part),
        _ => false,
    };
    assert!(is_same, "{actual:?} instead of {expected:?}");
}

/// The topics of every guest. The last one is for the replies.
fn topics() -> Vec<Topic> {
    vec![
        Topic::new(0, Overflow::Block, &[4 << 10, 16 << 10]),
        Topic::new(1, Overflow::DropNew, &[8 << 10]),
        Topic::new(2, Overflow::DropOldest, &[4 << 10]),
        Topic::new(3, Overflow::Block, &[4 << 10]),
    ]
}

/// The compiled guests, and the engine that runs them.
struct Guests {
    engine: Engine,
    batched: File,
    reference: File,
    /// The bytes at [`PATTERN`].
    pattern: Vec<u8>,
    /// The source of the messages that guests receive.
    messages: Vec<u8>,
}

static GUESTS: LazyLock<Guests> = LazyLock::new(|| {
    let engine = crate::engine::engine(1).expect("this machine runs WASM");
    // Any two ranges differ after a few bytes.
    let pattern: Vec<u8> = (PATTERN..PATTERN_END).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    let guest = |text: &str, abi| {
        let wasm = wat::parse_str(module(text, &pattern)).expect("it is a module");
        assert_eq!(inspect(&wasm).expect("it is a function").abi, abi);
        compile(&engine, &wasm)
    };
    let batched = guest(include_str!("batched.wat"), Abi::Batched);
    let reference = guest(include_str!("reference.wat"), Abi::Reference);
    let messages = pattern.repeat((2 << 20) / pattern.len());
    Guests { engine: engine.clone(), batched, reference, pattern, messages }
});

/// The complete text of a guest.
fn module(text: &str, pattern: &[u8]) -> String {
    let bytes: String = pattern.iter().map(|byte| format!("\\{byte:02x}")).collect();
    text.replace(";; INTERPRETER", include_str!("interpreter.wat"))
        .replace(";; PATTERN", &format!("(data (i32.const {PATTERN}) \"{bytes}\")"))
}

fn compile(engine: &Engine, wasm: &[u8]) -> File {
    let mut code = memory_file();
    code.write_all(&engine.precompile_module(wasm).expect("it compiles")).expect("there is memory");
    code
}

fn memory_file() -> File {
    File::from(memfd_create("estafette-guest", MemfdFlags::CLOEXEC).expect("there is memory"))
}

/// A host with its rings, and the effects of a guest.
struct Host {
    setup: Setup,
    /// Present until a function takes them.
    outputs: Option<Outputs>,
    /// The readers of each topic, by group.
    readers: Vec<Vec<Member>>,
    stdout: File,
}

impl Host {
    fn new(script: &Script) -> Host {
        let stop = Arc::new(StopSignal::new());
        // Nobody makes space in a full ring, so a wait for space ends at once.
        stop.sends().set();
        let counters = Arc::new(Counters::create().expect("there is memory").0);
        let clone = |file: &File| file.try_clone().expect("there are descriptors");
        let (mut all, mut readers) = (Vec::new(), Vec::new());
        for (at, topic) in topics().iter().enumerate() {
            let rings = topic.groups.iter().map(|group| ring(group.capacity, stop.sends()));
            let (groups, members) = rings.unzip();
            all.push(Output { max_message: MAX_MESSAGES[at], overflow: topic.overflow, groups, ended_groups: 0 });
            readers.push(members);
        }
        let answers = all.len() - 1;
        let outputs = Outputs {
            all,
            topics: (0..answers).collect(),
            reply: script.has_stream.then_some(answers),
            dead_letter: None,
            counters: Arc::clone(&counters),
            has_reported: Cell::new(false),
        };
        let stdout = memory_file();
        let setup = Setup {
            engine: GUESTS.engine.clone(),
            abi: script.abi,
            code: clone(if script.abi == Abi::Batched { &GUESTS.batched } else { &GUESTS.reference }),
            grants: Grants { args: vec![script.argument()], ..Grants::default() },
            stdout: clone(&stdout),
            stderr: memory_file(),
            memory_limit: (MAX_PAGES * PAGE) as usize,
            counters,
            stop,
        };
        Host { setup, outputs: Some(outputs), readers, stdout }
    }

    /// Publishes messages of these lengths. Returns the member that claims them.
    fn publish(&self, lengths: &[usize]) -> Member {
        let capacity = lengths.iter().map(|len| record_len(*len)).sum();
        let (mut publisher, member) = ring(capacity, &Interrupt::new());
        for len in lengths {
            let message = &GUESTS.messages[len % 256..][..*len];
            publisher.try_send(message).expect("the ring has space for all");
        }
        member
    }

    /// Asserts that all visible effects of the guest are as the model predicts.
    fn assert_effects(&mut self, function: &Function, model: &mut Model) {
        assert!(function.memory() == model.memory, "the memory differs");
        let overflows: Vec<_> = model.topics.iter().map(|topic| topic.overflow).collect();
        let expected = model.read_topics();
        for ((members, groups), overflow) in self.readers.iter_mut().zip(expected).zip(overflows) {
            for (member, mut expected) in members.iter_mut().zip(groups) {
                let actual = read(member);
                if overflow == Overflow::DropOldest {
                    let dropped = expected.len().checked_sub(actual.len()).expect("nothing was sent twice");
                    model.sent[2] += expected.drain(..dropped).count() as u64;
                }
                assert!(actual == expected, "{} messages instead of {}, or others", actual.len(), expected.len());
            }
        }
        let counters = &self.setup.counters;
        let sent = [Counter::SentMessages, Counter::SentBytes, Counter::Dropped].map(|counter| counters.get(counter));
        assert_eq!(sent, model.sent);
        assert_eq!(counters.get(Counter::Memory), model.memory.len() as u64);
        assert_eq!(counters.get(Counter::Busy), 0);
        let mut log = vec![0; model.log.len() + 1];
        let len = self.stdout.read_at(&mut log, 0).expect("it can be read");
        assert!(log[..len] == model.log, "the log differs");
    }
}

/// Creates a ring, and opens both ends.
fn ring(capacity: usize, interrupt: &Arc<Interrupt>) -> (Publisher, Member) {
    let (ring, bell) = (RingFile::create(capacity, 1).expect("there is memory"), BellFile::create().expect("and more"));
    let publisher = Publisher::open(&ring, &bell, WaitMode::Block, Arc::clone(interrupt)).expect("it is a ring");
    let member = Member::open(vec![ring], &bell, 0, WaitMode::Block, Interrupt::new()).expect("it is a ring");
    (publisher, member)
}

/// Claims all messages of a ring.
fn read(member: &mut Member) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(claim) = member.try_claim(usize::MAX, usize::MAX).expect("the ring is sound") {
        messages.extend(claim.messages().map(|message| message.to_vec()));
        claim.ack();
    }
    messages
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::panic::catch_unwind;

    use fastrand::Rng;

    use super::*;

    /// A short run of what `fuzz/` does for longer.
    #[test]
    fn thousands_of_random_guests_match_the_model() {
        let mut rng = Rng::with_seed(1);
        let mut ended: BTreeMap<Ended, usize> = BTreeMap::new();
        for _ in 0..2_000 {
            let steps = rng.usize(..80);
            let input: Vec<u8> = (0..8 + 11 * steps).map(|_| rng.u8(..)).collect();
            let how = catch_unwind(|| run(&input)).unwrap_or_else(|_| panic!("{}", input.escape_ascii()));
            *ended.entry(how).or_default() += 1;
        }
        assert!(ended.len() == 4 && ended.values().all(|count| *count > 5), "not every end was tried: {ended:?}");
    }

    /// The host then calls its own import, with the guest's memory.
    #[test]
    fn a_guest_may_export_what_it_imports() {
        let wasm = wat::parse_str(
            r#"(module
                (import "io" "send_websocket_message" (func $reply (param i32 i32)))
                (memory (export "memory") 17)
                (func (export "buffer_pointer") (result i32) (i32.const 8))
                (export "on_message" (func $reply)))"#,
        );
        let mut host = Host::new(&Script { abi: Abi::Reference, has_stream: true, deliveries: vec![], steps: vec![] });
        host.setup.code = compile(&GUESTS.engine, &wasm.unwrap());
        let mut function = Function::load(&host.setup, host.outputs.take().unwrap()).unwrap();
        function.start().unwrap();
        let mut member = host.publish(&[5, 0, 100]);
        let claim = member.try_claim(BATCH_BYTES, usize::MAX).unwrap().unwrap();
        function.deliver(&claim).unwrap();
        let messages: Vec<_> = claim.messages().map(|message| message.to_vec()).collect();
        assert_eq!(read(&mut host.readers[3][0]), messages);
    }
}
