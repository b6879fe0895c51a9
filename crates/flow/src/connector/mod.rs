//! Sources and sinks: threads of the supervisor that bring messages into the pipeline and out of
//! it.
//!
//! | file | content |
//! |---|---|
//! | `outlet.rs` | the output of a source, and its stop signal |
//! | `inlet.rs` | the input of a sink |
//! | `bytes.rs` | sources and sinks of byte streams: standard input and output, and files |
//! | `timer.rs` | the source that sends at intervals |
//! | `ring_watch.rs` | watches external sources and sinks |
//! | `requests.rs` | the source that receives HTTP requests |
//! | `problem.rs` | what keeps a connector from its work |
//! | `remote.rs` | the server of topics that cross hosts, in builds with and without it |
//! | `nats/` | topics that cross hosts: a sink that publishes, sources that read queues |
//! | `websocket/` | WebSocket clients: a source, a sink, and streams |

mod bytes;
mod inlet;
#[cfg(feature = "nats")]
mod nats;
mod outlet;
mod problem;
mod remote;
mod requests;
mod ring_watch;
mod timer;
mod websocket;

use std::sync::Arc;
use std::{io, thread};

use anyhow::{Context, Result, bail};

use self::inlet::Inlet;
use self::outlet::{Outlet, Stop};
use self::problem::Problem;
pub use self::remote::missing_on_server;
pub(crate) use self::remote::{Connections, RemoteEnds};
use self::ring_watch::RingWatch;
use crate::config::{End, Function, Pipeline, Sink, SinkKind, Source, SourceKind, Stream, Topology};
use crate::counters::{Counter, Counters};
use crate::external::{Holder, Lease, LeaseWatch};
use crate::status::ConnectorStatus;
use crate::supervisor::{Fabric, Mailbox, Message};

/// The end of a source or a sink.
pub(crate) struct ConnectorEvent {
    pub(crate) end: End,
    pub(crate) result: Result<()>,
}

/// The sources and sinks of a pipeline.
pub(crate) struct Connectors {
    all: Vec<Connector>,
}

/// A source or a sink.
struct Connector {
    end: End,
    name: String,
    stop: Arc<Stop>,
    /// For a stream: stops its input, while replies are still sent. For a source of a server: stops
    /// its input, while messages are still acknowledged.
    drain: Option<Arc<Stop>>,
    problem: Arc<Problem>,
    counters: Arc<Counters>,
    /// For an external end only.
    external: Option<External>,
    is_ended: bool,
}

/// The state of an external end.
struct External {
    /// Present until the end is taken.
    lease: Option<Lease>,
    watch: Arc<LeaseWatch>,
}

impl External {
    fn new() -> io::Result<External> {
        let (lease, watch) = Lease::new()?;
        Ok(External { lease: Some(lease), watch: Arc::new(watch) })
    }
}

impl Connectors {
    /// Creates the connectors of a pipeline. None runs yet.
    ///
    /// # Errors
    ///
    /// If memory or file descriptors are exhausted.
    pub(crate) fn new(pipeline: &Pipeline) -> Result<Connectors> {
        let sources = (0..).zip(&pipeline.sources).map(|(at, source)| (End::Source(at), &source.name));
        let sinks = (0..).zip(&pipeline.sinks).map(|(at, sink)| (End::Sink(at), &sink.name));
        let functions = (0..).zip(&pipeline.functions).filter(|(_, function)| function.stream.is_some());
        let streams = functions.map(|(at, function)| (End::Stream(at), &function.name));
        let connector = |(end, name): (End, &String)| -> Result<Connector> {
            let counters = Arc::new(Counters::create()?.0);
            let drain = has_drain(end, pipeline).then(Stop::new).transpose()?.map(Arc::new);
            let stop = Arc::new(Stop::new()?);
            let problem = Arc::new(Problem::new(name));
            let external = is_external(end, pipeline).then(External::new).transpose()?;
            Ok(Connector { end, name: name.clone(), stop, drain, problem, counters, external, is_ended: false })
        };
        Ok(Connectors { all: sources.chain(sinks).chain(streams).map(connector).collect::<Result<_>>()? })
    }

    /// The connectors that need a connection to a server before any of them starts.
    pub(crate) fn remote_ends(&self, pipeline: &Pipeline) -> RemoteEnds {
        let end = |it: &Connector| remote::RemoteEnd::of(it.end, &it.name, &it.problem, pipeline);
        RemoteEnds::new(pipeline, self.all.iter().filter_map(end).collect())
    }

    /// Starts all connectors, with one thread each.
    ///
    /// # Errors
    ///
    /// If one of them cannot be started.
    pub(crate) fn start(
        &self,
        mut connections: Connections,
        pipeline: &Pipeline,
        topology: &Topology,
        fabric: &Fabric,
        mailbox: &Mailbox<Message>,
    ) -> Result<()> {
        for connector in &self.all {
            let work = connector.work(pipeline, topology, fabric, &mut connections);
            let work = work.with_context(|| format!("cannot start `{}`", connector.name))?;
            let (end, mailbox) = (connector.end, mailbox.clone());
            let run = move || {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                let result = result.unwrap_or_else(|_| Err(anyhow::anyhow!("it panicked; the log says where")));
                mailbox.send(Message::Connector(ConnectorEvent { end, result }));
            };
            let name = connector.name.chars().take(15).collect();
            thread::Builder::new().name(name).spawn(run).context("cannot start a thread")?;
        }
        Ok(())
    }

    /// The lease of an external end, for its holder. None if the end was taken before.
    pub(crate) fn take_lease(&mut self, end: End) -> Option<Lease> {
        self.all.iter_mut().find(|connector| connector.end == end)?.external.as_mut()?.lease.take()
    }

    /// Whether an external end has a holder that has not closed it.
    pub(crate) fn has_holder(&self, end: End) -> bool {
        let external = self.all.iter().filter(|connector| connector.end == end).find_map(|it| it.external.as_ref());
        external.is_some_and(|external| external.watch.holder() == Holder::Present)
    }

    /// Handles the end of a connector. Returns the failure, unless the connector was asked to stop.
    pub(crate) fn on_event(&mut self, event: ConnectorEvent) -> Option<String> {
        let connector = self.all.iter_mut().find(|connector| connector.end == event.end)?;
        connector.is_ended = true;
        let error = event.result.err().filter(|_| !connector.stop.is_set())?;
        Some(format!("`{}` failed: {error:#}", connector.name))
    }

    /// The status of each connector.
    pub(crate) fn status(&self) -> Vec<ConnectorStatus> {
        let status = |connector: &Connector| ConnectorStatus {
            name: connector.name.clone(),
            sent_messages: connector.counters.get(Counter::SentMessages),
            received_messages: connector.counters.get(Counter::ReceivedMessages),
            dropped: connector.counters.get(Counter::Dropped),
            unread: connector.counters.get(Counter::Unread),
            is_ended: connector.is_ended,
            problem: connector.problem.get().filter(|_| !connector.is_ended),
        };
        self.all.iter().map(status).collect()
    }

    /// Whether all connectors have ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.all.iter().all(|connector| connector.is_ended)
    }

    /// Whether all sinks have ended.
    pub(crate) fn are_sinks_ended(&self) -> bool {
        self.all.iter().all(|connector| connector.is_ended || !matches!(connector.end, End::Sink(_)))
    }

    /// Whether this connector has ended.
    pub(crate) fn is_end_ended(&self, end: End) -> bool {
        self.all.iter().all(|connector| connector.end != end || connector.is_ended)
    }

    /// Stops all input from outside.
    pub(crate) fn stop_sources(&self) {
        for connector in &self.all {
            match (&connector.drain, connector.end) {
                (Some(drain), _) => drain.set(),
                (None, End::Source(_)) => connector.stop.set(),
                (None, _) => {}
            }
        }
    }

    /// Stops all connectors.
    pub(crate) fn stop(&self) {
        for connector in &self.all {
            connector.stop.set();
            connector.drain.iter().for_each(|drain| drain.set());
        }
    }
}

type Work = Box<dyn FnOnce() -> Result<()> + Send>;

impl Connector {
    /// The work of its thread.
    fn work(
        &self,
        pipeline: &Pipeline,
        topology: &Topology,
        fabric: &Fabric,
        connections: &mut Connections,
    ) -> Result<Work> {
        let inlet = || Inlet::open(self.end, pipeline, topology, fabric, &self.stop, &self.counters);
        let outlet = |stop| Outlet::open(self.end, pipeline, topology, fabric, stop, &self.counters);
        if let Some(external) = &self.external {
            let watch = RingWatch::open(self.end, &external.watch, topology, fabric, &self.stop, &self.counters)?;
            return Ok(Box::new(move || watch.run()));
        }
        match self.end {
            End::Source(at) => match &pipeline.sources[at].kind {
                SourceKind::Nats { topic, queue } => {
                    let outlet = outlet(self.drain.as_ref().unwrap_or(&self.stop))?;
                    connections.source(self, topic, queue, outlet, (pipeline, topology, fabric))
                }
                _ => source(&pipeline.sources[at], outlet(&self.stop)?),
            },
            End::Sink(at) => match &pipeline.sinks[at].kind {
                SinkKind::Nats(topic) => connections.sink(self, topic, inlet()?),
                _ => sink(&pipeline.sinks[at], inlet()?, &self.stop),
            },
            End::Stream(at) => {
                let drain = self.drain.as_ref().unwrap_or(&self.stop);
                stream(&pipeline.functions[at], outlet(drain)?, inlet()?, &self.stop)
            }
            End::Function { .. } => bail!("a function is no connector"),
        }
    }
}

/// Whether the input of a connector stops before the connector does.
fn has_drain(end: End, pipeline: &Pipeline) -> bool {
    match end {
        End::Stream(_) => true,
        End::Source(at) => matches!(pipeline.sources[at].kind, SourceKind::Nats { .. }),
        End::Sink(_) | End::Function { .. } => false,
    }
}

fn is_external(end: End, pipeline: &Pipeline) -> bool {
    match end {
        End::Source(at) => pipeline.sources[at].kind == SourceKind::External,
        End::Sink(at) => pipeline.sinks[at].kind == SinkKind::External,
        End::Function { .. } | End::Stream(_) => false,
    }
}

fn source(source: &Source, mut outlet: Outlet) -> Result<Work> {
    Ok(match &source.kind {
        SourceKind::Stdin(framing) => {
            let framing = *framing;
            Box::new(move || bytes::read_stdin(framing, &mut outlet))
        }
        SourceKind::File { path, framing } => {
            let (path, framing) = (path.clone(), *framing);
            Box::new(move || bytes::read_file(&path, framing, &mut outlet))
        }
        SourceKind::Timer { every, count } => {
            let (every, count) = (*every, *count);
            Box::new(move || timer::run(every, count, &mut outlet))
        }
        SourceKind::Http { listen, path } => {
            let server = requests::Server::bind(&source.name, *listen, path)?;
            Box::new(move || server.run(outlet))
        }
        SourceKind::Websocket { url } => {
            let (name, url) = (source.name.clone(), url.clone());
            Box::new(move || websocket::run_source(&name, &url, outlet))
        }
        SourceKind::Nats { .. } | SourceKind::External => bail!("it is no source of this machine"),
    })
}

fn sink(sink: &Sink, mut inlet: Inlet, stop: &Arc<Stop>) -> Result<Work> {
    Ok(match &sink.kind {
        SinkKind::Stdout(layout) => {
            let layout = *layout;
            Box::new(move || bytes::write_stdout(layout, &mut inlet))
        }
        SinkKind::File { path, append, layout } => {
            let file = bytes::create(path, *append)?;
            let (layout, path) = (*layout, path.clone());
            let what = move || format!("cannot write {}", path.display());
            Box::new(move || bytes::write_file(file, layout, &mut inlet).with_context(what))
        }
        SinkKind::Websocket { url } => {
            let (name, url, stop) = (sink.name.clone(), url.clone(), Arc::clone(stop));
            Box::new(move || websocket::run_sink(&name, &url, inlet, &stop))
        }
        SinkKind::Nats(_) | SinkKind::External => bail!("it is no sink of this machine"),
    })
}

/// Sends messages from a stream to a function, and the function's replies to the stream.
fn stream(function: &Function, outlet: Outlet, inlet: Inlet, stop: &Arc<Stop>) -> Result<Work> {
    let Some(Stream::Websocket { url }) = &function.stream else { bail!("`{}` has no stream", function.name) };
    let (name, url, stop) = (function.name.clone(), url.clone(), Arc::clone(stop));
    Ok(Box::new(move || websocket::run_stream(&name, &url, outlet, inlet, &stop)))
}
