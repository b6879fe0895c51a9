//! nanomsg 1, the version installed in the system, over a UNIX socket: a pair of sockets, or those
//! of a pipeline for several senders.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use estafette_contest_common::capacity::slots;
use estafette_contest_common::packets::{PacketRx, PacketSocket, PacketTx};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Tier};
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};

/// The part of `nanomsg/nn.h`, `pair.h` and `pipeline.h` that is used here. No Rust crate that
/// binds nanomsg is maintained any more.
#[allow(unsafe_code)]
mod c {
    use super::{c_char, c_int, c_void};

    pub(super) const AF_SP: c_int = 1;
    pub(super) const PAIR: c_int = 16;
    pub(super) const PUSH: c_int = 80;
    pub(super) const PULL: c_int = 81;
    pub(super) const SOL_SOCKET: c_int = 0;
    pub(super) const SNDBUF: c_int = 2;
    pub(super) const RCVBUF: c_int = 3;
    pub(super) const RCVMAXSIZE: c_int = 16;
    pub(super) const STAT_CURRENT_CONNECTIONS: c_int = 201;

    #[link(name = "nanomsg")]
    unsafe extern "C" {
        pub(super) fn nn_errno() -> c_int;
        pub(super) fn nn_strerror(code: c_int) -> *const c_char;
        pub(super) fn nn_socket(domain: c_int, protocol: c_int) -> c_int;
        pub(super) fn nn_setsockopt(
            socket: c_int,
            level: c_int,
            option: c_int,
            value: *const c_void,
            len: usize,
        ) -> c_int;
        pub(super) fn nn_bind(socket: c_int, address: *const c_char) -> c_int;
        pub(super) fn nn_connect(socket: c_int, address: *const c_char) -> c_int;
        pub(super) fn nn_send(socket: c_int, bytes: *const c_void, len: usize, flags: c_int) -> c_int;
        pub(super) fn nn_recv(socket: c_int, bytes: *mut c_void, len: usize, flags: c_int) -> c_int;
        pub(super) fn nn_get_statistic(socket: c_int, statistic: c_int) -> u64;
    }
}

/// The default size of a socket's buffers in bytes.
const MIN_BUFFER: usize = 128 << 10;
/// How long a party waits for its connections.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// `process/nanomsg`.
pub(super) struct Nanomsg;

impl Mechanism for Nanomsg {
    fn spec(&self) -> Spec {
        Spec::new("process/nanomsg")
            .any_language(true)
            .kernel_copies(2)
            .version(env!("NANOMSG"))
            .implementation("nanomsg over a UNIX socket: NN_PAIR, or NN_PUSH and NN_PULL; nn_send and nn_recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::FanIn])
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for Nanomsg {
    type Tx = PacketTx<Socket>;
    type Rx = PacketRx<Socket>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let is_consumer = matches!(role, Role::Consumer(_));
        let socket = Socket::open(match (case.pattern, is_consumer) {
            (Pattern::FanIn, false) => c::PUSH,
            (Pattern::FanIn, true) => c::PULL,
            _ => c::PAIR,
        })?;
        // The library passes these sizes to the kernel as socket buffers, where a message counts as
        // more than its bytes. So short messages get less capacity than requested. The buffers
        // belong to a connection, so several senders share the capacity. The size is never below
        // the default.
        let len = case.payload.len();
        let half = (slots(case) / case.producers / 2 * len).max(MIN_BUFFER) as c_int;
        socket.set(c::SNDBUF, half)?;
        socket.set(c::RCVBUF, half)?;
        socket.set(c::RCVMAXSIZE, -1)?;
        socket.join(is_consumer, rendezvous)?;
        socket.wait_until_connected(case, role, rendezvous)?;
        let has_reply = case.pattern.is_bidirectional();
        let tx = (has_reply || !is_consumer).then(|| PacketTx::new(socket, len));
        let rx = (has_reply || is_consumer).then(|| PacketRx::new(socket, len));
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// Converts the return value of a library function: a count, or a failure.
#[inline(always)]
fn check(code: c_int) -> io::Result<usize> {
    usize::try_from(code).map_err(|_| fault())
}

#[cold]
#[allow(unsafe_code)]
fn fault() -> io::Error {
    // SAFETY: both calls accept any code. The text is static and ends with a zero.
    let (code, text) = unsafe {
        let code = c::nn_errno();
        (code, CStr::from_ptr(c::nn_strerror(code)))
    };
    match code {
        libc::EINTR => io::ErrorKind::Interrupted.into(),
        _ => io::Error::other(text.to_string_lossy()),
    }
}

/// A socket. The library locks internally, so any thread may use it.
///
/// It is not closed, because that would discard messages in flight. It ends with the process, which
/// exits after everything is received.
#[derive(Clone, Copy)]
pub(super) struct Socket(c_int);

impl Socket {
    #[allow(unsafe_code)]
    fn open(protocol: c_int) -> Result<Socket> {
        // SAFETY: the call accepts any numbers.
        let socket = check(unsafe { c::nn_socket(c::AF_SP, protocol) }).context("opening a socket")?;
        Ok(Socket(socket as c_int))
    }

    #[allow(unsafe_code)]
    fn set(&self, option: c_int, value: c_int) -> Result<()> {
        let place = (&raw const value).cast();
        // SAFETY: the length is that of the value.
        let set = unsafe { c::nn_setsockopt(self.0, c::SOL_SOCKET, option, place, size_of_val(&value)) };
        check(set).with_context(|| format!("setting option {option} to {value}")).map(drop)
    }

    /// Connects the socket to the other party's, through a socket in the instance's directory.
    #[allow(unsafe_code)]
    fn join(&self, binds: bool, rendezvous: &mut Rendezvous) -> Result<()> {
        let path = rendezvous.dir().join("socket");
        let address = CString::new([b"ipc://", path.as_os_str().as_bytes()].concat())?;
        if binds {
            // SAFETY: the address ends with a zero.
            check(unsafe { c::nn_bind(self.0, address.as_ptr()) }).context("listening")?;
            rendezvous.publish("socket", "listening")
        } else {
            rendezvous.request("socket")?;
            // SAFETY: as above.
            check(unsafe { c::nn_connect(self.0, address.as_ptr()) }).context("connecting to the consumer").map(drop)
        }
    }

    /// Waits until all parties are connected. Each end of a connection gives up after a second
    /// without the header of the other one, and connects anew. By then the other end may have sent
    /// messages, which are lost (`streamhdr.c` of nanomsg 1.1.5).
    fn wait_until_connected(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<()> {
        if let Role::Producer(producer) = role {
            rendezvous.request("connected")?;
            self.wait_for_connections(1)?;
            return rendezvous.publish(&format!("connected:{producer}"), "");
        }
        let producers = if case.pattern == Pattern::FanIn { case.producers } else { 1 };
        self.wait_for_connections(producers)?;
        rendezvous.publish("connected", "")?;
        (0..producers).try_for_each(|producer| rendezvous.request(&format!("connected:{producer}")).map(drop))
    }

    #[allow(unsafe_code)]
    fn wait_for_connections(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            // SAFETY: the call accepts any numbers.
            let connected = unsafe { c::nn_get_statistic(self.0, c::STAT_CURRENT_CONNECTIONS) };
            if connected == count as u64 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{connected} of {count} connections in {CONNECT_TIMEOUT:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl PacketSocket for Socket {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn send_packet(&mut self, packet: &[u8]) -> io::Result<()> {
        loop {
            // SAFETY: the length is that of the message, which the call copies before it returns.
            match check(unsafe { c::nn_send(self.0, packet.as_ptr().cast(), packet.len(), 0) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => break sent.map(drop),
            }
        }
    }

    /// Receives a message and copies as much as fits. Returns the message's full length.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn recv_packet(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // SAFETY: the length is that of the buffer.
            match check(unsafe { c::nn_recv(self.0, buffer.as_mut_ptr().cast(), buffer.len(), 0) }) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received,
            }
        }
    }
}
