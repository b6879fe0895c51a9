//! UDP datagrams, optimised for speed.
//!
//! Up to 64 datagrams of a stream pass the network stack as one (`UDP_SEGMENT`); the kernel would
//! split them where they leave the machine. They are received the same way (`UDP_GRO`). If the case
//! allows spinning, a receiver reads without blocking for 50 us before it sleeps.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Loss, Ordering, Tier, Wait};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Verifier};
use nix::cmsg_space;
use nix::sys::socket::sockopt::{UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use rustix::net::{RecvFlags, recv};

use super::frames::{Bare, SendEnd, Socket, batched, spin_then_block};
use super::udp::{MAX_DATAGRAM, connect_pair};

/// The highest number of datagrams that every kernel accepts as one.
const SEGMENTS: usize = 64;
/// The highest number of bytes that are received at once.
const MAX_RECEIVED: usize = 64 << 10;

/// `network/udp-tuned`.
pub(super) struct UdpTuned;

impl Mechanism for UdpTuned {
    fn spec(&self) -> Spec {
        Spec::new("network/udp-tuned")
            .implementation("UDP, connected, send and recv: of a stream up to 64 by one, by UDP_SEGMENT and UDP_GRO")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::SameThread])
            .waits(&[Wait::Block, Wait::Adaptive])
            .max_message(MAX_DATAGRAM)
            .ordering(Ordering::Unordered)
            .loss(Loss::BestEffort)
            .between_hosts(true)
            .tier(Tier::StandardAllCells)
    }
}

impl Transport<Raw> for UdpTuned {
    type Tx = SendEnd<Bare, Socket>;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, RecvEnd>> {
        let [to, from] = connect_pair(case, role, rendezvous)?;
        let (len, batched) = (case.payload.len(), batched(case));
        let max_bytes = if batched { enable_segmentation(&to, len) * len } else { len };
        let tx = SendEnd::with_batch_bytes(Bare { len }, Socket::new(to, case), max_bytes);
        // If the kernel does not support it, datagrams are received one by one.
        let combined = batched && setsockopt(&from, UdpGroSegment, &true).is_ok();
        let rx = RecvEnd::new(from, combined, case.wait == Wait::Adaptive);
        Ok(Ends::both(role, tx, rx))
    }
}

/// Makes the kernel split sent data into datagrams of `len` bytes. Returns how many may be sent at
/// once; one if the kernel does not support it.
fn enable_segmentation(socket: &UdpSocket, len: usize) -> usize {
    let max_datagrams = (MAX_DATAGRAM / len).min(SEGMENTS);
    if max_datagrams > 1 && setsockopt(socket, UdpGsoSegment, &(len as i32)).is_ok() { max_datagrams } else { 1 }
}

/// The receiving end.
pub(super) struct RecvEnd {
    socket: UdpSocket,
    /// Whether several datagrams may be received as one.
    combined: bool,
    spins: bool,
    buffer: Vec<u8>,
    control: Vec<u8>,
    /// The received bytes that were not verified.
    start: usize,
    end: usize,
    /// The length of each datagram in them; the last may be shorter.
    datagram: usize,
}

impl RecvEnd {
    fn new(socket: UdpSocket, combined: bool, spins: bool) -> RecvEnd {
        let (buffer, control) = (vec![0; MAX_RECEIVED], cmsg_space!(i32));
        RecvEnd { socket, combined, spins, buffer, control, start: 0, end: 0, datagram: 0 }
    }

    /// Verifies the next datagram. Receives if there is none.
    #[inline(always)]
    fn read_into(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        if self.start == self.end {
            (self.end, self.datagram) = self.recv_datagrams()?;
            self.start = 0;
        }
        let end = self.end.min(self.start + self.datagram);
        verifier.bytes(&self.buffer[self.start..end]);
        self.start = end;
        Ok(())
    }

    /// Receives datagrams. Returns the number of bytes, and the length of the datagrams that were
    /// combined.
    #[inline(always)]
    fn recv_datagrams(&mut self) -> io::Result<(usize, usize)> {
        let RecvEnd { socket, combined, buffer, control, .. } = self;
        spin_then_block(self.spins, |sleeps| {
            if !*combined {
                let flags = if sleeps { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
                let (_, len) = recv(&*socket, &mut buffer[..], flags)?;
                return Ok((len, len));
            }
            let flags = if sleeps { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
            let mut parts = [IoSliceMut::new(buffer)];
            let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control[..]), flags)?;
            let datagram = received.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::UdpGroSegments(len) => usize::try_from(len).ok().filter(|len| *len > 0),
                _ => None,
            });
            Ok((received.bytes, datagram.unwrap_or(received.bytes)))
        })
    }
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.read_into(verifier)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use estafette_measure::Generator;

    use super::*;

    #[test]
    fn combined_datagrams_are_received_separately() {
        const LEN: usize = 100;
        let [from, to] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let max_datagrams = enable_segmentation(&from, LEN);
        let combined = setsockopt(&to, UdpGroSegment, &true).is_ok();
        let mut next = Generator::new(1, 0, LEN);
        let mut verifier = Verifier::new(1, 1, LEN);
        let mut rx = RecvEnd::new(to, combined, true);
        for count in [1, 2, max_datagrams] {
            let mut messages = vec![0; count.min(max_datagrams) * LEN];
            messages.chunks_mut(LEN).for_each(|message| next.fill(message));
            from.send(&messages).unwrap();
            while verifier.received() < next.made() {
                rx.read_into(&mut verifier).unwrap();
            }
        }
        assert_eq!(verifier.finish().1, Default::default());
    }
}
