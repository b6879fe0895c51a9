//! The command `peer`: the other host of `bench --to`. Runs the consumers of its instances here.

use std::fs::File;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use estafette_measure::Registry;
use estafette_measure::coordinator::Interrupt;
use estafette_measure::hosts::SessionLink;
use estafette_measure::hosts::peer::{self, SessionEnd};

use crate::args::Peer;
use crate::exit::Exit;
use crate::hosts::{hello, ssh};

/// Runs `peer`.
pub(crate) fn run(registry: &Registry, args: &Peer) -> Result<Exit> {
    match args.listen {
        #[cfg(feature = "hosts")]
        Some(listen) => listening::run(registry, args, listen),
        #[cfg(not(feature = "hosts"))]
        Some(_) => anyhow::bail!(crate::hosts::NO_TLS),
        None => stdio(registry, args),
    }
}

/// Serves one session over the standard input and output: what `bench --to ssh://` starts.
fn stdio(registry: &Registry, args: &Peer) -> Result<Exit> {
    let connection = std::env::var(ssh::CONNECTION).ok();
    let (client, server) = ssh::addresses(connection.as_deref()).unzip();
    let address = args.address.or(server).with_context(|| {
        format!("{} does not say at which address this host listens: give it with --peer-address", ssh::CONNECTION)
    })?;
    let mut interrupt = Interrupt::install().context("cannot listen for signals")?;
    let reader = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let writer = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    // The thread that reads ends with the process.
    let link = SessionLink { reader: Box::new(reader), writer: Box::new(writer), close: Box::new(|| {}) };
    let ours = hello().with_addresses(address, client);
    let end = peer::greet(link, &ours)?.serve(registry, address, &mut interrupt)?;
    Ok(exit(end))
}

fn exit(end: SessionEnd) -> Exit {
    match end {
        SessionEnd::Complete => Exit::Fine,
        SessionEnd::Interrupted => Exit::Interrupted,
    }
}

#[cfg(feature = "hosts")]
mod listening {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::sync::PoisonError;
    use std::sync::mpsc::{Receiver, channel};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    use super::*;
    use crate::hosts::tcp::{Accepted, Door};
    use crate::hosts::token::{Token, VARIABLE};
    use crate::terminal::{print, report_to_stderr};

    /// Serves one session after the other, until the user interrupts.
    pub(super) fn run(registry: &Registry, args: &Peer, listen: SocketAddr) -> Result<Exit> {
        let given = Token::given(args.token_file.as_deref())?;
        let is_given = given.is_some();
        let token = given.map_or_else(Token::random, Ok)?;
        let listener = TcpListener::bind(listen)
            .with_context(|| format!("cannot listen at {listen}: choose an address of this host and a free port"))?;
        let mut interrupt = Interrupt::install().context("cannot listen for Ctrl-C")?;
        print(&invitation(listener.local_addr()?, (!is_given).then_some(&token)))?;
        let door = Door::new(token, args.address)?;
        let (sender, coordinators) = channel();
        let (wake, waker) = UnixStream::pair().context("making a socket")?;
        wake.set_nonblocking(true)?;
        let sender = Mutex::new(sender);
        door.accept_all(listener, move |accepted| {
            // Errors mean that the command is about to end.
            let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(accepted);
            let _ = (&waker).write_all(&[0]);
        })?;
        loop {
            let Some(accepted) = next(&coordinators, &wake, &mut interrupt)? else { return Ok(Exit::Interrupted) };
            let end = serve(registry, accepted, &mut interrupt);
            door.reopen();
            if end == Some(SessionEnd::Interrupted) {
                return Ok(Exit::Interrupted);
            }
            if args.once {
                return Ok(if end.is_some() { Exit::Fine } else { Exit::Usage });
            }
        }
    }

    /// What to run on the other host.
    fn invitation(at: SocketAddr, token: Option<&Token>) -> String {
        let host = match at.ip() {
            // Of all addresses of this host only the user knows the right one.
            ip if ip.is_unspecified() => rustix::system::uname().nodename().to_string_lossy().into_owned(),
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let token = token.map_or_else(String::new, |token| format!("{VARIABLE}={} ", token.text()));
        format!(
            "listening at {at}; run on the other host:\n  {token}estafette bench net --to tcp://{host}:{}\n",
            at.port()
        )
    }

    /// Blocks until a coordinator has greeted. `None` if the user interrupts.
    fn next(
        coordinators: &Receiver<Accepted>,
        mut wake: &UnixStream,
        interrupt: &mut Interrupt,
    ) -> Result<Option<Accepted>> {
        loop {
            if interrupt.is_requested() {
                return Ok(None);
            }
            if let Ok(accepted) = coordinators.try_recv() {
                return Ok(Some(accepted));
            }
            let mut polled = [PollFd::new(wake, PollFlags::IN), PollFd::new(&*interrupt, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for a coordinator"),
            }
            match wake.read(&mut [0; 16]) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                _ => {}
            }
        }
    }

    /// Serves a session. `None` if it failed, which is reported.
    fn serve(registry: &Registry, accepted: Accepted, interrupt: &mut Interrupt) -> Option<SessionEnd> {
        let Accepted { greeted, from, at } = accepted;
        report_to_stderr(&format!("session with {from}"));
        match greeted.serve(registry, at, interrupt) {
            Ok(end) => {
                report_to_stderr(&format!("the session with {from} has ended"));
                Some(end)
            }
            Err(error) => {
                report_to_stderr(&format!("the session with {from} has failed: {error:#}"));
                None
            }
        }
    }
}
