//! How messages get to an endpoint.

use std::sync::Arc;

use crate::connection::Connection;
use crate::datagrams::Socket;

/// How to send to an endpoint.
#[derive(Clone)]
pub(crate) enum Route {
    Stream(Arc<Connection>),
    Datagrams(Arc<Socket>),
}
