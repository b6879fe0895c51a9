//! Redis through a `redis-server` for each instance on a UNIX socket, without persistence. Every
//! command waits for its reply, as in a program without pipelining.
//!
//! A list serves as a queue: `LPUSH` adds a message, `BRPOP` waits and removes one. A
//! publish-subscribe channel stores nothing: the server writes each message to all current
//! subscribers. Both are unbounded, so credit limits the messages in flight.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use ::redis::{Connection, ConnectionAddr, IntoConnectionInfo, Msg, RedisError, cmd};
use anyhow::{Context, Result, ensure};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::server::{self, CONFIG, Server};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Ownership;
use estafette_measure::usage::Usage;
use estafette_measure::{Generator, Rendezvous, Rx, Spec, Tx, Verifier};

use super::broker::{Broker, Brokered, Names};

const SERVER: Server =
    Server { program: "redis-server", package: "redis-server", arguments: &[CONFIG], asked: "--version" };

/// No TCP, nothing on disk, and no slow subscriber is disconnected.
const CONFIGURATION: &str = "\
port 0
unixsocket socket
unixsocketperm 700
save \"\"
appendonly no
loglevel warning
client-output-buffer-limit pubsub 0 0 0
";

/// The server's own limit of a value in bytes, `proto-max-bulk-len`.
const MAX_MESSAGE: usize = 512 << 20;

/// `process/redis-list` or `process/redis-pubsub`.
pub(super) struct Redis {
    name: &'static str,
    implementation: &'static str,
    delivery: Delivery,
}

/// How the server passes messages on.
#[derive(Clone, Copy)]
enum Delivery {
    List,
    Channel,
}

pub(super) const LIST: Brokered<Redis> = Brokered(Redis {
    name: "redis-list",
    implementation: "redis-server on a UNIX socket, LPUSH and BRPOP, each command waits for its reply",
    delivery: Delivery::List,
});
pub(super) const CHANNEL: Brokered<Redis> = Brokered(Redis {
    name: "redis-pubsub",
    implementation: "redis-server on a UNIX socket, PUBLISH and SUBSCRIBE, each command waits for its reply",
    delivery: Delivery::Channel,
});

impl Broker for Redis {
    type Client = Client;
    type Name = String;
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn spec(&self) -> Spec {
        let common = [Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply];
        let patterns = match self.delivery {
            Delivery::List => common.to_vec(),
            Delivery::Channel => [&common[..], &[Pattern::PubSub]].concat(),
        };
        Spec::new(&format!("process/{}", self.name))
            .any_language(true)
            .kernel_copies(4)
            .version(concat!("redis ", env!("LOCKED_REDIS")))
            .implementation(self.implementation)
            .patterns(&patterns)
            .ownership(Ownership::Borrowed)
            .max_message(MAX_MESSAGE)
    }

    fn server(&self) -> &Server {
        &SERVER
    }

    fn serve(&self, rendezvous: &mut Rendezvous) -> Result<Usage> {
        SERVER.serve(CONFIGURATION, rendezvous, server::listens)
    }

    fn connect(&self, case: &Case, _: Role, rendezvous: &mut Rendezvous) -> Result<Client> {
        Ok(Client { path: server::socket(rendezvous)?, len: case.payload.len() })
    }

    fn sender(&self, client: &Client, names: Names<String>) -> Result<SendEnd> {
        let command = match self.delivery {
            Delivery::List => "LPUSH",
            Delivery::Channel => "PUBLISH",
        };
        Ok(SendEnd { connection: client.open()?, command, names, buffer: Buffer::new(client.len) })
    }

    fn receiver(&self, client: &Client, name: &str) -> Result<RecvEnd> {
        let mut connection = client.open()?;
        if let Delivery::Channel = self.delivery {
            // The reply arrives when the subscription is active. Messages follow on the same
            // connection.
            connection.send_packed_command(&cmd("SUBSCRIBE").arg(name).get_packed_command())?;
            let reply = connection.recv_response().with_context(|| format!("subscribing to {name}"))?;
            ensure!(Msg::from_owned_value(reply).is_none(), "a message arrived before the subscription to {name}");
        }
        Ok(RecvEnd { connection, delivery: self.delivery, name: name.to_owned() })
    }
}

/// The parameters of a party's connections. Each end has its own.
pub(super) struct Client {
    path: PathBuf,
    /// The length of every message in bytes.
    len: usize,
}

impl Client {
    fn open(&self) -> Result<Connection> {
        let address = ConnectionAddr::Unix(self.path.clone()).into_connection_info()?;
        ::redis::Client::open(address)?.get_connection().context("connecting to redis-server")
    }
}

fn failed(error: RedisError) -> io::Error {
    io::Error::other(error)
}

/// The sending end.
pub(super) struct SendEnd {
    connection: Connection,
    command: &'static str,
    names: Names<String>,
    buffer: Buffer,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let name = self.names.of(source);
        source.fill(&mut self.buffer);
        let command = cmd(self.command).arg(name).arg(&self.buffer[..]).take();
        // The result is the list's length, or the number of subscribers.
        match command.query::<u64>(&mut self.connection).map_err(failed)? {
            0 => Err(ErrorKind::BrokenPipe.into()),
            _ => Ok(()),
        }
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    connection: Connection,
    delivery: Delivery,
    name: String,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match self.delivery {
            Delivery::List => {
                // The timeout 0 means to wait without a limit.
                let command = cmd("BRPOP").arg(&self.name).arg(0).take();
                let (_, message): (String, Vec<u8>) = command.query(&mut self.connection).map_err(failed)?;
                verifier.bytes(&message);
            }
            Delivery::Channel => {
                let reply = self.connection.recv_response().map_err(failed)?;
                let message = Msg::from_owned_value(reply).ok_or(ErrorKind::InvalidData)?;
                verifier.bytes(message.get_payload_bytes());
            }
        }
        Ok(())
    }
}
