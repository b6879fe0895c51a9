//! The stream socket that joins two parties: TCP on loopback, or a UNIX socket in the instance's directory.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::{Context, Result};
use estafette_measure::Rendezvous;
use estafette_measure::case::Role;

use super::tcp;

/// What it is a socket of.
#[derive(Clone, Copy)]
pub(super) enum Over {
    Tcp,
    Unix,
}

impl Over {
    /// What a party sends by, and what it receives from: one socket for both, or, where it plays all, the two ends of a
    /// connection.
    pub(super) fn joined(self, role: Role, meet: &mut Rendezvous) -> Result<[OwnedFd; 2]> {
        match (role, self) {
            (Role::All, Over::Tcp) => Ok(tcp::pair()?.map(OwnedFd::from)),
            (Role::All, Over::Unix) => Ok(<[_; 2]>::from(UnixStream::pair()?).map(OwnedFd::from)),
            _ => {
                let socket = self.connected(role, meet)?;
                Ok([socket.try_clone()?, socket])
            }
        }
    }

    /// The party's end of a connection; of TCP without Nagle's delay.
    fn connected(self, role: Role, meet: &mut Rendezvous) -> Result<OwnedFd> {
        match self {
            Over::Tcp => Ok(tcp::connected(role, meet)?.into()),
            Over::Unix => Ok(unix(role, meet)?.into()),
        }
    }
}

fn unix(role: Role, meet: &mut Rendezvous) -> Result<UnixStream> {
    let path = meet.dir().join("socket");
    if let Role::Consumer(_) = role {
        let listener = UnixListener::bind(&path).with_context(|| format!("listening on {}", path.display()))?;
        meet.offer("socket", "listening")?;
        return Ok(listener.accept()?.0);
    }
    meet.want("socket")?;
    UnixStream::connect(&path).with_context(|| format!("connecting to {}", path.display()))
}
