//! A node of estafette-net.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::ControlFlow;

use estafette_net::{Batch, Endpoint, Event, Handle, Node, Options, Outcome};

use crate::contender::{Link, Side};
use crate::{BUFFER, Result, Wire};

/// A node of estafette-net.
pub(crate) struct Net {
    node: Node<()>,
    handle: Handle<()>,
    to: Option<Endpoint>,
    batch: Option<Batch<()>>,
}

impl Net {
    pub(crate) fn open(wire: Wire, len: usize, side: Side, batched: bool) -> Result<Net> {
        let node = Node::new()?;
        let mut net = Net { handle: node.handle(), node, to: None, batch: None };
        let options = if wire == Wire::Tcp { Options::default().records(len) } else { Options::default() };
        let any = format!("{}://127.0.0.1:0", wire.scheme());
        let at = |address: SocketAddr| format!("{}://{address}", wire.scheme());
        let listen = |net: &Net| -> Result<SocketAddr> {
            let listener = net.handle.listen_with(&*any, &options)?;
            let address = net.handle.local_address(listener).and_then(|address| address.port()).ok_or("no port")?;
            Ok(SocketAddr::from(([127, 0, 0, 1], address)))
        };
        let mut ends = 1;
        match side {
            Side::Receiver(addresses) => addresses.send(listen(&net)?)?,
            Side::Sender(address) => net.to = Some(net.handle.connect_with(at(address.recv()?), &options)?),
            Side::Both => {
                net.to = Some(net.handle.connect_with(at(listen(&net)?), &options)?);
                ends = 2;
            }
        }
        if wire == Wire::Udp {
            // A datagram socket has nothing to wait for. Its peer is known from the first message on.
            if let Some(to) = net.to {
                let _ = check(net.handle.send(to, &[255]))?;
            }
            let is_sender = net.to.is_some() && ends == 1;
            if !is_sender {
                net.recv(|_| ControlFlow::Break(()))?;
            }
        } else {
            net.wait(|net, event| match event {
                Event::Connected(endpoint) | Event::Accepted { endpoint, .. } => {
                    net.get_or_insert(*endpoint);
                    ends -= 1;
                    ends == 0
                }
                _ => false,
            })?;
        }
        net.batch = net.to.filter(|_| batched).map(|to| net.handle.batch(to));
        Ok(net)
    }

    /// Waits for an event.
    fn wait(&mut self, mut is_it: impl FnMut(&mut Option<Endpoint>, &Event<'_, ()>) -> bool) -> Result<()> {
        loop {
            match self.node.next(None)? {
                Some(event) if is_it(&mut self.to, &event) => return Ok(()),
                Some(Event::Closed { reason, .. }) => return Err(reason.into()),
                _ => {}
            }
        }
    }

    fn wait_until_drained(&mut self) -> Result<()> {
        self.wait(|_, event| matches!(event, Event::Drained(_)))
    }

    /// Repeats a send until it is accepted, and waits until nothing is queued, as a blocking send
    /// does.
    fn send_with(&mut self, mut send: impl FnMut(&mut Net) -> Outcome) -> Result<()> {
        loop {
            match check(send(self))? {
                Outcome::Sent => return Ok(()),
                Outcome::Queued => return self.wait_until_drained(),
                _ => self.wait_until_drained()?,
            }
        }
    }
}

/// Turns a send that cannot succeed into an error.
fn check(outcome: Outcome) -> Result<Outcome> {
    match outcome {
        Outcome::Sent | Outcome::Queued | Outcome::Full => Ok(outcome),
        other => Err(io::Error::new(ErrorKind::BrokenPipe, format!("not sent: {other:?}")).into()),
    }
}

impl Link for Net {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let Some(batch) = &mut self.batch else {
            let to = self.to.ok_or("nobody to send to")?;
            return self.send_with(|net| net.handle.send(to, message));
        };
        if !batch.is_empty() && batch.len() + message.len() + 16 > BUFFER {
            self.flush()?;
        }
        let batch = self.batch.as_mut().ok_or("no batch")?;
        if check(batch.push(message))? == Outcome::Full {
            self.send_with(|net| net.batch.as_mut().map_or(Outcome::Closed, |batch| batch.push(message)))?;
        }
        // A long message is not collected, and a part of it may be queued.
        if message.len() > BUFFER / 4 { self.flush() } else { Ok(()) }
    }

    fn recv(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        let (mut is_enough, mut closed) = (false, None);
        while !is_enough {
            let to = &mut self.to;
            self.node.poll_until(None, |event| match event {
                Event::Message(from, message) => {
                    to.get_or_insert(from);
                    let next = look(&message);
                    is_enough = next.is_break();
                    next
                }
                Event::Closed { reason, .. } => {
                    closed = Some(reason);
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            })?;
            if let Some(reason) = closed.take() {
                return Err(reason.into());
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match &self.batch {
            Some(_) => self.send_with(|net| net.batch.as_mut().map_or(Outcome::Closed, Batch::flush)),
            None => Ok(()),
        }
    }
}
