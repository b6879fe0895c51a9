//! An AF_VSOCK connection within this machine. These sockets connect a virtual machine and its
//! host; some kernels also provide a loopback transport.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::byte_stream::{Reading, SocketEnd, Writing};
use estafette_contest_common::capacity;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, VsockAddr, accept4, bind, connect, getsockname, listen, socket,
};

/// The address of the local machine.
const LOCAL: u32 = libc::VMADDR_CID_LOCAL;

pub(super) struct Vsock;

impl Mechanism for Vsock {
    fn spec(&self) -> Spec {
        Spec::new("process/vsock")
            .kernel_copies(2)
            .implementation("AF_VSOCK, SOCK_STREAM, to VMADDR_CID_LOCAL; send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .tier(Tier::Standard)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (listener, port) = listening().ok()?;
        let ours = connected(port).ok()?;
        let _theirs = accepted(&listener).ok()?;
        capacity::written(ours, case.payload.len())
    }

    fn check_available(&self) -> Result<(), String> {
        let made =
            unconnected().and_then(|socket| bind(socket.as_raw_fd(), &VsockAddr::new(LOCAL, libc::VMADDR_PORT_ANY)));
        made.map_err(|error| match error {
            Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL => String::from(
                "no AF_VSOCK loopback: `modprobe vsock_loopback`, where the kernel has it \
                 (CONFIG_VSOCKETS_LOOPBACK)",
            ),
            error => format!("no AF_VSOCK loopback: {}", error.desc()),
        })
    }
}

fn unconnected() -> nix::Result<OwnedFd> {
    socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
}

/// Returns a socket that listens on a port of the kernel's choice, and the port.
fn listening() -> Result<(OwnedFd, u32)> {
    let socket = unconnected().context("making a socket of AF_VSOCK")?;
    let any = VsockAddr::new(LOCAL, libc::VMADDR_PORT_ANY);
    bind(socket.as_raw_fd(), &any).context("binding to VMADDR_CID_LOCAL")?;
    listen(&socket, Backlog::new(1)?)?;
    let here: VsockAddr = getsockname(socket.as_raw_fd())?;
    Ok((socket, here.port()))
}

fn connected(port: u32) -> Result<OwnedFd> {
    let socket = unconnected().context("making a socket of AF_VSOCK")?;
    connect(socket.as_raw_fd(), &VsockAddr::new(LOCAL, port)).context("connecting to VMADDR_CID_LOCAL")?;
    Ok(socket)
}

#[allow(unsafe_code)]
fn accepted(listener: &OwnedFd) -> Result<OwnedFd> {
    let socket = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).context("accepting the producer")?;
    // SAFETY: the descriptor is new, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

impl Transport<Raw> for Vsock {
    type Tx = Writing<SocketEnd>;
    type Rx = Reading<SocketEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let connected = if let Role::Consumer(_) = role {
            let (listener, port) = listening()?;
            rendezvous.publish("port", &port.to_string())?;
            accepted(&listener)?
        } else {
            connected(rendezvous.request("port")?.parse().context("a port number")?)?
        };
        let len = case.payload.len();
        let (tx, rx) = SocketEnd::both(connected)?;
        let (tx, rx) = (Writing::new(tx, len), Reading::new(rx, len));
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}
