//! The stream socket that joins two parties: TCP on loopback, or a UNIX socket in the instance's directory.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::{Context, Result};
use estafette_measure::Rendezvous;
use estafette_measure::case::{Case, Role};

use super::{multi_connection, tcp};

/// What it is a socket of.
#[derive(Clone, Copy)]
pub(super) enum Over {
    Tcp,
    Unix,
}

impl Over {
    /// What a party sends by, and what it receives from: one socket for both, or, where it plays all, the two ends of a
    /// connection.
    pub(super) fn joined(self, role: Role, rendezvous: &mut Rendezvous) -> Result<[OwnedFd; 2]> {
        match (role, self) {
            (Role::All, Over::Tcp) => Ok(tcp::pair()?.map(OwnedFd::from)),
            (Role::All, Over::Unix) => Ok(<[_; 2]>::from(UnixStream::pair()?).map(OwnedFd::from)),
            _ => {
                let socket = self.connected(role, rendezvous)?;
                Ok([socket.try_clone()?, socket])
            }
        }
    }

    /// The party's end of a connection.
    fn connected(self, role: Role, rendezvous: &mut Rendezvous) -> Result<OwnedFd> {
        self.connections(1, role, rendezvous)?.pop().context("a connection")
    }

    /// The party's ends of all its connections, where several send.
    pub(super) fn several(self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Vec<OwnedFd>> {
        self.connections(multi_connection::connections(case, role), role, rendezvous)
    }

    /// The party's ends of so many connections; of TCP without Nagle's delay.
    fn connections(self, count: usize, role: Role, rendezvous: &mut Rendezvous) -> Result<Vec<OwnedFd>> {
        Ok(match self {
            Over::Tcp => tcp::connections(count, role, rendezvous)?.into_iter().map(OwnedFd::from).collect(),
            Over::Unix => unix(count, role, rendezvous)?.into_iter().map(OwnedFd::from).collect(),
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
