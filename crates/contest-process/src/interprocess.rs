//! The local socket of `interprocess`: on Linux a UNIX stream socket in the instance's directory.

use std::os::unix::net::UnixStream as Socket;

use ::interprocess::TryClone;
use ::interprocess::local_socket::{GenericFilePath, ListenerOptions, Stream, prelude::*};
use anyhow::{Context, Result};
use estafette_contest_common::byte_stream::{Reading, Writing};
use estafette_contest_common::capacity;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};

pub(super) struct Interprocess;

impl Mechanism for Interprocess {
    fn spec(&self) -> Spec {
        Spec::new("process/interprocess")
            .kernel_copies(2)
            .version(env!("LOCKED_INTERPROCESS"))
            .implementation("interprocess::local_socket, write and read")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .tier(Tier::Standard)
    }

    /// It is a kernel socket with the kernel's default buffers.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (ours, _theirs) = Socket::pair().ok()?;
        capacity::written(ours, case.payload.len())
    }
}

impl Transport<Raw> for Interprocess {
    type Tx = Writing<Stream>;
    type Rx = Reading<Stream>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let path = rendezvous.dir().join("socket");
        let name = path.as_path().to_fs_name::<GenericFilePath>()?;
        let stream = if let Role::Consumer(_) = role {
            let listener = ListenerOptions::new().name(name).create_sync().context("listening")?;
            rendezvous.publish("socket", "listening")?;
            listener.accept().context("accepting the producer")?
        } else {
            rendezvous.request("socket")?;
            Stream::connect(name).context("connecting to the consumer")?
        };
        let len = case.payload.len();
        let (tx, rx) = (Writing::new(stream.try_clone()?, len), Reading::new(stream, len));
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}
