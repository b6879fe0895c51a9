//! Pipelines on several hosts that a NATS server joins. Every host is a process or a thread of this
//! machine, with a folder of its own.
//!
//! Without `nats-server` the tests are skipped and say so; with `ESTAFETTE_PEERS=required` they
//! fail.

mod bad_input;
mod client;
mod delivery;
mod ground;
mod kills;
mod python;
mod server;
