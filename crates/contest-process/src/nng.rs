//! nng, the successor of nanomsg, over a UNIX socket and over TCP: a pair of sockets,
//! or those of a pipeline for several senders.
//!
//! Uses the C library's blocking calls. The Rust crates on top of it offer futures, which one more
//! thread has to wake. Messages are allocated by the library, and filled and read in place.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
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

/// The highest capacity of a socket's buffer in messages.
const MOST_BUFFERED: usize = 8192;

/// `process/nng-ipc` or `network/nng`.
pub(crate) struct Nng {
    name: &'static str,
    implementation: &'static str,
    lower_transport: LowerTransport,
}

/// The transport below nng.
#[derive(Clone, Copy)]
pub(super) enum LowerTransport {
    Ipc,
    Tcp,
}

pub(super) const IPC: Nng = Nng {
    name: "process/nng-ipc",
    implementation: "nng over a UNIX socket: pair1, or push0 and pull0; nng_sendmsg and nng_recvmsg",
    lower_transport: LowerTransport::Ipc,
};

pub(crate) const NETWORK: Nng = Nng {
    name: "network/nng",
    implementation: "nng over TCP: pair1, or push0 and pull0; nng_sendmsg and nng_recvmsg",
    lower_transport: LowerTransport::Tcp,
};

impl Mechanism for Nng {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .any_language(true)
            .kernel_copies(2)
            .version(&version())
            .implementation(self.implementation)
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::FanIn])
            .ownership(Ownership::Owned)
            .ordering(Ordering::PerProducer)
            .max_producers(None)
            .between_hosts(matches!(self.lower_transport, LowerTransport::Tcp))
            .tier(Tier::Standard)
    }

    /// Messages in the kernel's buffers between the two sockets count, too.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        self.probe_capacity(case).ok()
    }
}

impl Nng {
    /// Opens a party's socket.
    fn socket(case: &Case, is_consumer: bool) -> Result<Socket> {
        if case.pattern != Pattern::FanIn {
            let socket = Socket::open(nng_pair1_open)?;
            socket.set(NNG_OPT_SENDBUF, half(case))?;
            socket.set(NNG_OPT_RECVBUF, half(case))?;
            return Ok(socket);
        }
        // With several senders, the receiver's socket buffers only one message of each. Each
        // sender's socket has its own buffer.
        if is_consumer {
            return Socket::open(nng_pull0_open);
        }
        let socket = Socket::open(nng_push0_open)?;
        socket.set(NNG_OPT_SENDBUF, buffered(slots(case) / case.streams()))?;
        Ok(socket)
    }

    /// Probes the capacity in messages: one sender sends until a send times out. Each of several
    /// senders has the same capacity.
    fn probe_capacity(&self, case: &Case) -> Result<u64> {
        let [from, to] = [Nng::socket(case, false)?, Nng::socket(case, true)?];
        from.set_timeout(NNG_OPT_SENDTIMEO, capacity::IN_VAIN)?;
        match self.lower_transport {
            LowerTransport::Ipc => {
                // Without a file, because there is no directory for it.
                let url = CString::new(format!("abstract://estafette-capacity-{}", std::process::id()))?;
                to.listen(&url)?;
                from.dial(&url)?;
            }
            LowerTransport::Tcp => {
                let address = Ipv4Addr::LOCALHOST.into();
                let port = port(to.listen(&url(SocketAddr::new(address, 0))?)?)?;
                from.dial(&url(SocketAddr::new(address, port))?)?;
            }
        }
        let mut source = Generator::new(0, 0, case.payload.len());
        let mut sending = SendEnd { socket: from, len: case.payload.len() };
        let accepted = capacity::times(|| sending.send(&mut source).is_ok());
        from.close();
        to.close();
        Ok(accepted * case.producers as u64)
    }
}

impl Transport<Raw> for Nng {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let is_consumer = matches!(role, Role::Consumer(_));
        let socket = Nng::socket(case, is_consumer)?;
        socket.join(is_consumer, self.lower_transport, rendezvous)?;
        let len = case.payload.len();
        let has_reply = case.pattern.is_bidirectional();
        let tx = (has_reply || !is_consumer).then_some(SendEnd { socket, len });
        let rx = (has_reply || is_consumer).then_some(RecvEnd { socket });
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// Returns the version of the C library, which determines the results.
#[allow(unsafe_code)]
pub(super) fn version() -> String {
    // SAFETY: the call returns a static text that ends with a zero.
    unsafe { CStr::from_ptr(nng_version()) }.to_string_lossy().into_owned()
}

/// Returns the capacity of a socket's buffer in messages: half of the requested capacity.
pub(super) fn half(case: &Case) -> i32 {
    buffered(slots(case) / 2)
}

fn buffered(messages: usize) -> i32 {
    messages.clamp(1, MOST_BUFFERED) as i32
}

/// Converts the return value of a library function.
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
    // SAFETY: the call accepts any code and returns a static text that ends with a zero.
    let text = unsafe { CStr::from_ptr(nng_strerror(nng_err(code as u32))) };
    io::Error::other(text.to_string_lossy())
}

/// A socket. The library locks internally, so any thread may use it.
///
/// A socket that carries messages is not closed, because that would discard messages in flight. It
/// ends with the process, which exits after everything is received.
#[derive(Clone, Copy)]
pub(super) struct Socket(pub(super) nng_socket);

impl Socket {
    #[allow(unsafe_code)]
    pub(super) fn open(open: unsafe extern "C" fn(*mut nng_socket) -> i32) -> Result<Socket> {
        let mut socket = nng_socket::default();
        // SAFETY: a null pointer selects the defaults, and the function may be called repeatedly.
        let started = unsafe { nng_init(ptr::null()) };
        anyhow::ensure!(
            matches!(started, nng_err::NNG_OK | nng_err::NNG_EBUSY),
            "starting nng: {}",
            fault(started.0 as i32)
        );
        // SAFETY: the library is initialised, and `socket` is a valid place for the result.
        check(unsafe { open(&mut socket) }).context("opening a socket")?;
        // SAFETY: the socket is open, and the option's name ends with a zero. Zero means no limit.
        check(unsafe { nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ.as_ptr().cast(), 0) })
            .context("setting the longest message")?;
        Ok(Socket(socket))
    }

    #[allow(unsafe_code)]
    pub(super) fn set(&self, option: &[u8], value: i32) -> Result<()> {
        let option = CStr::from_bytes_with_nul(option)?;
        // SAFETY: the socket is open, and the option's name ends with a zero.
        check(unsafe { nng_socket_set_int(self.0, option.as_ptr(), value) })
            .with_context(|| format!("setting {option:?}"))
    }

    /// Sets a timeout for sends or receives.
    #[allow(unsafe_code)]
    pub(super) fn set_timeout(&self, option: &[u8], timeout: Duration) -> Result<()> {
        let option = CStr::from_bytes_with_nul(option)?;
        // SAFETY: the socket is open, and the option's name ends with a zero.
        check(unsafe { nng_socket_set_ms(self.0, option.as_ptr(), timeout.as_millis() as i32) })
            .with_context(|| format!("setting {option:?}"))
    }

    /// Connects the socket to the other party, through a socket in the instance's directory or any
    /// free port. On the dialing side it returns when the connection is established.
    pub(super) fn join(
        &self,
        listens: bool,
        lower_transport: LowerTransport,
        rendezvous: &mut Rendezvous,
    ) -> Result<()> {
        let path = rendezvous.dir().join("socket");
        let ipc = CString::new([b"ipc://", path.as_os_str().as_bytes()].concat())?;
        match (lower_transport, listens) {
            (LowerTransport::Ipc, true) => {
                self.listen(&ipc)?;
                rendezvous.publish("socket", "listening")
            }
            (LowerTransport::Ipc, false) => {
                rendezvous.request("socket")?;
                self.dial(&ipc)
            }
            (LowerTransport::Tcp, true) => {
                let address = rendezvous.address();
                let port = port(self.listen(&url(SocketAddr::new(address, 0))?)?)?;
                rendezvous.publish("address", &SocketAddr::new(address, port).to_string())
            }
            (LowerTransport::Tcp, false) => self.dial(&url(rendezvous.request("address")?.parse()?)?),
        }
    }

    #[allow(unsafe_code)]
    fn listen(&self, url: &CStr) -> Result<nng_listener> {
        let mut listener = nng_listener::default();
        // SAFETY: the socket is open, the address ends with a zero, and `listener` is a valid place
        // for the result.
        check(unsafe { nng_listen(self.0, url.as_ptr(), &mut listener, 0) }).context("listening")?;
        Ok(listener)
    }

    #[allow(unsafe_code)]
    fn dial(&self, url: &CStr) -> Result<()> {
        // SAFETY: the socket is open, and the address ends with a zero. The null pointer means that
        // no dialer is returned.
        check(unsafe { nng_dial(self.0, url.as_ptr(), ptr::null_mut(), 0) }).context("connecting to the consumer")
    }

    /// Closes the socket and discards messages in flight.
    #[allow(unsafe_code)]
    fn close(self) {
        // SAFETY: the call accepts any socket. Closing a closed one is only an error code.
        let _ = unsafe { nng_socket_close(self.0) };
    }
}

/// Returns the URL of an address.
fn url(address: SocketAddr) -> Result<CString> {
    Ok(CString::new(format!("tcp://{address}"))?)
}

/// Returns a listener's port.
#[allow(unsafe_code)]
fn port(listener: nng_listener) -> Result<u16> {
    let mut port = 0;
    // SAFETY: the call accepts any listener, the option's name ends with a zero, and `port` is a
    // valid place for the result.
    check(unsafe { nng_listener_get_int(listener, NNG_OPT_BOUND_PORT.as_ptr().cast(), &mut port) })
        .context("asking for the port")?;
    u16::try_from(port).context("asking for the port")
}

/// A message allocated by the library. Dropping it frees the memory.
struct Message(NonNull<nng_msg>);

impl Message {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn new(len: usize) -> io::Result<Message> {
        let mut message = ptr::null_mut();
        // SAFETY: `message` is a valid place for the result.
        check(unsafe { nng_msg_alloc(&mut message, len) })?;
        NonNull::new(message).map(Message).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: only `self` refers to the message. Its body has `nng_msg_len` bytes, which the
        // library has initialised to zero.
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
        // SAFETY: `self` owns the message and is dropped.
        unsafe { nng_msg_free(self.0.as_ptr()) }
    }
}

/// The sending end.
pub(crate) struct SendEnd {
    pub(super) socket: Socket,
    pub(super) len: usize,
}

impl Tx for SendEnd {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let mut message = Message::new(self.len)?;
        source.fill(message.bytes());
        // SAFETY: the caller owns the message.
        check(unsafe { nng_sendmsg(self.socket.0, message.0.as_ptr(), 0) })?;
        // A successful send passes the ownership to the library.
        std::mem::forget(message);
        Ok(())
    }
}

/// The receiving end.
pub(crate) struct RecvEnd {
    pub(super) socket: Socket,
}

impl Rx for RecvEnd {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let mut message = ptr::null_mut();
        // SAFETY: `message` is a valid place for the result.
        check(unsafe { nng_recvmsg(self.socket.0, &mut message, 0) })?;
        let mut message = Message(NonNull::new(message).ok_or(io::ErrorKind::UnexpectedEof)?);
        verifier.bytes(message.bytes());
        Ok(())
    }
}
