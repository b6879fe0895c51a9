//! The stream socket that connects two parties: TCP, or a UNIX socket in the instance's
//! directory.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::{Context, Result};
use estafette_measure::Rendezvous;
use estafette_measure::case::{Case, Role};

use super::{multi_connection, tcp_connection};

/// The kind of stream socket.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum SocketKind {
    Tcp,
    Unix,
}

impl SocketKind {
    /// Returns the sockets that a party sends to and receives from. They are the same socket, or,
    /// if one party runs all roles, the two ends of a connection.
    pub(super) fn connect_pair(self, role: Role, rendezvous: &mut Rendezvous) -> Result<[OwnedFd; 2]> {
        match (role, self) {
            (Role::All, SocketKind::Tcp) => Ok(tcp_connection::pair()?.map(OwnedFd::from)),
            (Role::All, SocketKind::Unix) => Ok(<[_; 2]>::from(UnixStream::pair()?).map(OwnedFd::from)),
            _ => {
                let socket = self.connected(role, rendezvous)?;
                Ok([socket.try_clone()?, socket])
            }
        }
    }

    /// Returns the party's end of a connection.
    fn connected(self, role: Role, rendezvous: &mut Rendezvous) -> Result<OwnedFd> {
        self.connections(1, role, rendezvous)?.pop().context("a connection")
    }

    /// Returns the party's ends of all its connections in a pattern with several senders.
    pub(super) fn connect_all(self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Vec<OwnedFd>> {
        self.connections(multi_connection::connections(case, role), role, rendezvous)
    }

    /// Returns the party's ends of `count` connections, for TCP with `TCP_NODELAY`.
    fn connections(self, count: usize, role: Role, rendezvous: &mut Rendezvous) -> Result<Vec<OwnedFd>> {
        Ok(match self {
            SocketKind::Tcp => {
                tcp_connection::connections(count, role, rendezvous)?.into_iter().map(OwnedFd::from).collect()
            }
            SocketKind::Unix => unix(count, role, rendezvous)?.into_iter().map(OwnedFd::from).collect(),
        })
    }
}

fn unix(count: usize, role: Role, rendezvous: &mut Rendezvous) -> Result<Vec<UnixStream>> {
    let path = rendezvous.dir().join("socket");
    if let Role::Consumer(_) = role {
        let listener = UnixListener::bind(&path).with_context(|| format!("listening on {}", path.display()))?;
        rendezvous.publish("socket", "listening")?;
        return (0..count).map(|_| Ok(listener.accept()?.0)).collect();
    }
    rendezvous.request("socket")?;
    let connect = |_| UnixStream::connect(&path).with_context(|| format!("connecting to {}", path.display()));
    (0..count).map(connect).collect()
}
