//! nng, the successor of nanomsg, over a UNIX socket and over TCP on loopback: a pair of sockets, or those of a pipeline where
//! several send.
//!
//! The C library's own calls, which block: the crates above them offer futures, which are woken by one more thread. Messages
//! are the library's, filled and read where they lie.

use std::ffi::{CStr, CString};
use std::future::{Future, ready};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::slice;
use std::time::Duration;

use anyhow::{Context, Result};
use estafette_contest_common::capacity::{self, slots};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Ownership, Tier};
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use nng_sys::{
    NNG_OPT_BOUND_PORT, NNG_OPT_RECVBUF, NNG_OPT_RECVMAXSZ, NNG_OPT_SENDBUF, NNG_OPT_SENDTIMEO, nng_dial, nng_err,
    nng_init, nng_listen, nng_listener, nng_listener_get_int, nng_msg, nng_msg_alloc, nng_msg_body, nng_msg_free,
    nng_msg_len, nng_pair1_open, nng_pull0_open, nng_push0_open, nng_recvmsg, nng_sendmsg, nng_socket,
    nng_socket_close, nng_socket_set_int, nng_socket_set_ms, nng_socket_set_size, nng_strerror, nng_version,
};

/// The most messages that a socket's buffer holds.
const MOST_BUFFERED: usize = 8192;

/// `process/nng-ipc` or `network/nng`.
pub(crate) struct Nng {
    name: &'static str,
    implementation: &'static str,
    over: Over,
}

/// What messages go through.
#[derive(Clone, Copy)]
pub(super) enum Over {
    Ipc,
    Tcp,
}

pub(super) const IPC: Nng = Nng {
    name: "process/nng-ipc",
    implementation: "nng over a UNIX socket: pair1, or push0 and pull0; nng_sendmsg and nng_recvmsg",
    over: Over::Ipc,
};

pub(crate) const NETWORK: Nng = Nng {
    name: "network/nng",
    implementation: "nng over TCP on 127.0.0.1: pair1, or push0 and pull0; nng_sendmsg and nng_recvmsg",
    over: Over::Tcp,
};

impl Mechanism for Nng {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .version(&version())
            .implementation(self.implementation)
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::FanIn])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .tier(Tier::Standard)
    }

    /// Those in the kernel's buffers between the two sockets count, too.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        self.tried(case).ok()
    }
}

impl Nng {
    /// A party's socket.
    fn socket(case: &Case, consumes: bool) -> Result<Socket> {
        if case.pattern != Pattern::FanIn {
            let socket = Socket::open(nng_pair1_open)?;
            socket.set(NNG_OPT_SENDBUF, half(case))?;
            socket.set(NNG_OPT_RECVBUF, half(case))?;
            return Ok(socket);
        }
        // Where several send, the receiver's socket has no buffer but one message of each; each sender's is its own.
        if consumes {
            return Socket::open(nng_pull0_open);
        }
        let socket = Socket::open(nng_push0_open)?;
        socket.set(NNG_OPT_SENDBUF, buffered(slots(case) / case.senders()))?;
        Ok(socket)
    }

    /// How many messages sockets take, as one sender tries it until it has waited in vain: each of several has as much room.
    fn tried(&self, case: &Case) -> Result<u64> {
        let [from, to] = [Nng::socket(case, false)?, Nng::socket(case, true)?];
        from.set_patience(NNG_OPT_SENDTIMEO, capacity::IN_VAIN)?;
        match self.over {
            Over::Ipc => {
                // Without a file, as there is no directory for it.
                let url = CString::new(format!("abstract://estafette-capacity-{}", std::process::id()))?;
                to.listen(&url)?;
                from.dial(&url)?;
            }
            Over::Tcp => from.dial(&loopback(&port(to.listen(&loopback("0")?)?)?)?)?,
        }
        let mut source = Generator::new(0, 0, case.payload.len());
        let mut sending = Sending { socket: from, len: case.payload.len() };
        let taken = capacity::times(|| sending.send(&mut source).is_ok());
        from.close();
        to.close();
        Ok(taken * case.producers as u64)
    }
}

impl Transport<Raw> for Nng {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let consumes = matches!(role, Role::Consumer(_));
        let socket = Nng::socket(case, consumes)?;
        socket.join(consumes, self.over, rendezvous)?;
        let len = case.payload.len();
        let answered = case.pattern.both_ways();
        let tx = (answered || !consumes).then_some(Sending { socket, len });
        let rx = (answered || consumes).then_some(Receiving { socket });
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// The version of the C library, which is what counts.
#[allow(unsafe_code)]
pub(super) fn version() -> String {
    // SAFETY: it returns a text that ends with a zero and stays.
    unsafe { CStr::from_ptr(nng_version()) }.to_string_lossy().into_owned()
}

/// How many messages a socket's buffer holds: half of what may be under way.
pub(super) fn half(case: &Case) -> i32 {
    buffered(slots(case) / 2)
}

fn buffered(messages: usize) -> i32 {
    messages.clamp(1, MOST_BUFFERED) as i32
}

/// What a function of the library says.
#[inline(always)]
pub(super) fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(fault(code)) }
}

#[cold]
#[allow(unsafe_code)]
fn fault(code: i32) -> io::Error {
    if code == nng_err::NNG_ETIMEDOUT.0 as i32 {
        return io::ErrorKind::TimedOut.into();
    }
    // SAFETY: it takes any code, and returns a text that ends with a zero and stays.
    let text = unsafe { CStr::from_ptr(nng_strerror(nng_err(code as u32))) };
    io::Error::other(text.to_string_lossy())
}

/// A socket. One that carries messages is not closed, as what is under way would go with it; it ends with the process, which stays until all have
/// been received. The library locks within: any thread may use it.
#[derive(Clone, Copy)]
pub(super) struct Socket(pub(super) nng_socket);

impl Socket {
    #[allow(unsafe_code)]
    pub(super) fn open(open: unsafe extern "C" fn(*mut nng_socket) -> i32) -> Result<Socket> {
        let mut socket = nng_socket::default();
        // SAFETY: no parameters stand for the defaults, and it may be called again.
        let begun = unsafe { nng_init(ptr::null()) };
        anyhow::ensure!(
            matches!(begun, nng_err::NNG_OK | nng_err::NNG_EBUSY),
            "starting nng: {}",
            fault(begun.0 as i32)
        );
        // SAFETY: the library has been started, and the place is ours.
        check(unsafe { open(&mut socket) }).context("opening a socket")?;
        // SAFETY: the socket is open, the option's name ends with a zero. None stands for no limit.
        check(unsafe { nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ.as_ptr().cast(), 0) })
            .context("the longest message")?;
        Ok(Socket(socket))
    }

    #[allow(unsafe_code)]
    pub(super) fn set(&self, option: &[u8], value: i32) -> Result<()> {
        let option = CStr::from_bytes_with_nul(option)?;
        // SAFETY: the socket is open, the option's name ends with a zero.
        check(unsafe { nng_socket_set_int(self.0, option.as_ptr(), value) })
            .with_context(|| format!("setting {option:?}"))
    }

    /// Has it wait no longer than this, to send or to receive.
    #[allow(unsafe_code)]
    pub(super) fn set_patience(&self, option: &[u8], patience: Duration) -> Result<()> {
        let option = CStr::from_bytes_with_nul(option)?;
        // SAFETY: the socket is open, the option's name ends with a zero.
        check(unsafe { nng_socket_set_ms(self.0, option.as_ptr(), patience.as_millis() as i32) })
            .with_context(|| format!("setting {option:?}"))
    }

    /// Joins it to the others', by a socket in the instance's directory or by any port that is free. Returns when a connection is
    /// made, at the side that asks for it.
    pub(super) fn join(&self, listens: bool, over: Over, rendezvous: &mut Rendezvous) -> Result<()> {
        let path = rendezvous.dir().join("socket");
        let ipc = CString::new([b"ipc://", path.as_os_str().as_bytes()].concat())?;
        match (over, listens) {
            (Over::Ipc, true) => {
                self.listen(&ipc)?;
                rendezvous.publish("socket", "listening")
            }
            (Over::Ipc, false) => {
                rendezvous.request("socket")?;
                self.dial(&ipc)
            }
            (Over::Tcp, true) => rendezvous.publish("port", &port(self.listen(&loopback("0")?)?)?),
            (Over::Tcp, false) => self.dial(&loopback(&rendezvous.request("port")?)?),
        }
    }

    #[allow(unsafe_code)]
    fn listen(&self, url: &CStr) -> Result<nng_listener> {
        let mut listener = nng_listener::default();
        // SAFETY: the socket is open, the address ends with a zero, and the place is ours.
        check(unsafe { nng_listen(self.0, url.as_ptr(), &mut listener, 0) }).context("listening")?;
        Ok(listener)
    }

    #[allow(unsafe_code)]
    fn dial(&self, url: &CStr) -> Result<()> {
        // SAFETY: the socket is open, the address ends with a zero; nobody asks for the dialer.
        check(unsafe { nng_dial(self.0, url.as_ptr(), ptr::null_mut(), 0) }).context("connecting to the consumer")
    }

    /// Closes it, with all that is under way.
    #[allow(unsafe_code)]
    fn close(self) {
        // SAFETY: it takes any socket. That it was closed already is no fault.
        let _ = unsafe { nng_socket_close(self.0) };
    }
}

/// The address of a port on loopback.
fn loopback(port: &str) -> Result<CString> {
    Ok(CString::new(format!("tcp://127.0.0.1:{port}"))?)
}

/// The port that a listener was given.
#[allow(unsafe_code)]
fn port(listener: nng_listener) -> Result<String> {
    let mut port = 0;
    // SAFETY: it takes any listener, the option's name ends with a zero, and the place is ours.
    check(unsafe { nng_listener_get_int(listener, NNG_OPT_BOUND_PORT.as_ptr().cast(), &mut port) })
        .context("asking for the port")?;
    Ok(port.to_string())
}

/// A message of the library, freed as it goes.
struct Message(NonNull<nng_msg>);

impl Message {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn new(len: usize) -> io::Result<Message> {
        let mut message = ptr::null_mut();
        // SAFETY: the place is ours.
        check(unsafe { nng_msg_alloc(&mut message, len) })?;
        NonNull::new(message).map(Message).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the message is ours alone, and its body has as many bytes as it says, which the library sets to zero before
        // anything else.
        unsafe {
            let len = nng_msg_len(self.0.as_ptr());
            slice::from_raw_parts_mut(nng_msg_body(self.0.as_ptr()).cast(), len)
        }
    }
}

impl Drop for Message {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: it is ours, and goes.
        unsafe { nng_msg_free(self.0.as_ptr()) }
    }
}

/// The sending end.
pub(crate) struct Sending {
    pub(super) socket: Socket,
    pub(super) len: usize,
}

impl Sending {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let mut message = Message::new(self.len)?;
        source.fill(message.bytes());
        // SAFETY: the message is ours.
        check(unsafe { nng_sendmsg(self.socket.0, message.0.as_ptr(), 0) })?;
        // It is the library's now.
        std::mem::forget(message);
        Ok(())
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source))
    }
}

/// The receiving end.
pub(crate) struct Receiving {
    pub(super) socket: Socket,
}

impl Receiving {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let mut message = ptr::null_mut();
        // SAFETY: the place is ours.
        check(unsafe { nng_recvmsg(self.socket.0, &mut message, 0) })?;
        let mut message = Message(NonNull::new(message).ok_or(io::ErrorKind::UnexpectedEof)?);
        verifier.bytes(message.bytes());
        Ok(())
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(verifier))
    }
}
