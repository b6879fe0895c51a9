//! UDP datagrams on loopback, as fast as that can be written: those of a stream go down the network stack as one, 64 of them at
//! the most, which the kernel would cut apart where they leave the machine (`UDP_SEGMENT`), and are received so (`UDP_GRO`).
//! Where it may spin before it sleeps, it receives without blocking for 50 us first.

use std::future::{Future, ready};
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

use super::frames::{Bare, Sending, Socket, spinning, together};
use super::udp::{MAX_DATAGRAM, joined};

/// How many datagrams every kernel takes as one.
const SEGMENTS: usize = 64;
/// As much as can come as one.
const MAX_RECEIVED: usize = 64 << 10;

/// `network/udp-tuned`.
pub(super) struct UdpTuned;

impl Mechanism for UdpTuned {
    fn spec(&self) -> Spec {
        Spec::new("network/udp-tuned")
            .implementation(
                "UDP on 127.0.0.1, connected, send and recv: of a stream up to 64 by one, by UDP_SEGMENT and UDP_GRO",
            )
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::SameThread])
            .waits(&[Wait::Block, Wait::Adaptive])
            .max_message(MAX_DATAGRAM)
            .ordering(Ordering::Unordered)
            .loss(Loss::BestEffort)
            .tier(Tier::StandardAllCells)
    }
}

impl Transport<Raw> for UdpTuned {
    type Tx = Sending<Bare, Socket>;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Receiving>> {
        let [to, from] = joined(case, role, rendezvous)?;
        let (len, together) = (case.payload.len(), together(case));
        let most = if together { cut_into(&to, len) * len } else { len };
        let tx = Sending::with_room(Bare { len }, Socket::new(to, case), most);
        // Where the kernel refuses, they come one by one.
        let several = together && setsockopt(&from, UdpGroSegment, &true).is_ok();
        let rx = Receiving::new(from, several, case.wait == Wait::Adaptive);
        Ok(Ends::both(role, tx, rx))
    }
}

/// Has what is sent cut into datagrams of this length. Returns how many there may be: one, where the kernel refuses.
fn cut_into(socket: &UdpSocket, len: usize) -> usize {
    let most = (MAX_DATAGRAM / len).min(SEGMENTS);
    if most > 1 && setsockopt(socket, UdpGsoSegment, &(len as i32)).is_ok() { most } else { 1 }
}

/// The receiving end.
pub(super) struct Receiving {
    socket: UdpSocket,
    /// Whether several may come as one.
    several: bool,
    spins: bool,
    buffer: Vec<u8>,
    control: Vec<u8>,
    /// What came as one and was not looked at.
    start: usize,
    end: usize,
    /// How long each of those is; the last may be shorter.
    datagram: usize,
}

impl Receiving {
    fn new(socket: UdpSocket, several: bool, spins: bool) -> Receiving {
        let (buffer, control) = (vec![0; MAX_RECEIVED], cmsg_space!(i32));
        Receiving { socket, several, spins, buffer, control, start: 0, end: 0, datagram: 0 }
    }

    /// Looks at the next datagram, and receives where there is none.
    #[inline(always)]
    fn read_into(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        if self.start == self.end {
            (self.end, self.datagram) = self.receive()?;
            self.start = 0;
        }
        let end = self.end.min(self.start + self.datagram);
        verifier.bytes(&self.buffer[self.start..end]);
        self.start = end;
        Ok(())
    }

    /// How many bytes came, and how long the datagrams are that came as one.
    #[inline(always)]
    fn receive(&mut self) -> io::Result<(usize, usize)> {
        let Receiving { socket, several, buffer, control, .. } = self;
        spinning(self.spins, |sleeps| {
            if !*several {
                let flags = if sleeps { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
                let (_, len) = recv(&*socket, &mut buffer[..], flags)?;
                return Ok((len, len));
            }
            let flags = if sleeps { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
            let mut parts = [IoSliceMut::new(buffer)];
            let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control[..]), flags)?;
            let datagram = received.cmsgs()?.find_map(|said| match said {
                ControlMessageOwned::UdpGroSegments(len) => usize::try_from(len).ok().filter(|len| *len > 0),
                _ => None,
            });
            Ok((received.bytes, datagram.unwrap_or(received.bytes)))
        })
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.read_into(verifier))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use estafette_measure::Generator;

    use super::*;

    #[test]
    fn what_goes_as_one_comes_as_the_datagrams_that_it_is_made_of() {
        const LEN: usize = 100;
        let [from, to] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let most = cut_into(&from, LEN);
        let several = setsockopt(&to, UdpGroSegment, &true).is_ok();
        let mut next = Generator::new(1, 0, LEN);
        let mut verifier = Verifier::new(1, 1, LEN);
        let mut rx = Receiving::new(to, several, true);
        for count in [1, 2, most] {
            let mut messages = vec![0; count.min(most) * LEN];
            messages.chunks_mut(LEN).for_each(|message| next.fill(message));
            from.send(&messages).unwrap();
            while verifier.received() < next.made() {
                rx.read_into(&mut verifier).unwrap();
            }
        }
        assert_eq!(verifier.finish().1, Default::default());
    }
}
