//! Message framing, as chosen by the scheme of an address.

use std::io;

use crate::Address;
use crate::codec::length::LengthDecoder;
use crate::codec::websocket::{Opening, Side, WebSocketDecoder};
use crate::codec::{Decoder, Framing};
use crate::limits::Limits;
use crate::transport::Options;
use crate::upgrade_rules::check_options;

/// How messages are framed on top of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Raw,
    /// As raw, but delivered in records of this many bytes.
    Records(usize),
    Length,
    WebSocket,
}

impl Scheme {
    /// Splits a scheme into the name of its transport and its framing.
    pub(crate) fn of(scheme: &str) -> (&str, Scheme) {
        match scheme {
            "ws" => ("tcp", Scheme::WebSocket),
            "wss" => ("tls", Scheme::WebSocket),
            _ => match scheme.strip_suffix("+msg") {
                Some(base) => (base, Scheme::Length),
                None => (scheme, Scheme::Raw),
            },
        }
    }

    /// Applies the options for streams without framing, and checks those for WebSockets.
    ///
    /// # Errors
    ///
    /// If an option is invalid.
    pub(crate) fn with_options(self, options: &Options, limits: &Limits) -> io::Result<Scheme> {
        match (self, options.records) {
            (Scheme::Raw, Some(len)) if len == 0 || len > limits.message => {
                let what = format!("records of {len} bytes: 1 to {} are allowed, see Limits::message", limits.message);
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
            (Scheme::Raw, Some(len)) => Ok(Scheme::Records(len)),
            (Scheme::WebSocket, _) => check_options(options).map(|()| self),
            _ => Ok(self),
        }
    }

    pub(crate) fn framing(self, side: Side) -> Framing {
        match self {
            Scheme::Raw | Scheme::Records(_) => Framing::Raw,
            Scheme::Length => Framing::Length,
            Scheme::WebSocket => Framing::WebSocket(side),
        }
    }

    /// Creates the decoder of a connection. A WebSocket has an opening handshake first.
    pub(crate) fn decoder(self, side: Side, opening: impl FnOnce() -> Opening, limits: &Limits) -> Decoder {
        match self {
            Scheme::Raw => Decoder::Raw,
            Scheme::Records(len) => Decoder::Records(len),
            Scheme::Length => Decoder::Length(LengthDecoder::new(limits.message)),
            Scheme::WebSocket => {
                Decoder::WebSocket(Box::new(WebSocketDecoder::new(side, opening(), limits.message, limits.parts)))
            }
        }
    }

    /// The address of an endpoint with this framing, from the address of the transport.
    pub(crate) fn address(self, base: &Address) -> Option<Address> {
        let text = base.to_string();
        match (self, text.split_once("://")?) {
            (Scheme::Raw | Scheme::Records(_), _) => Some(base.clone()),
            (Scheme::Length, (scheme, rest)) => format!("{scheme}+msg://{rest}").parse().ok(),
            (Scheme::WebSocket, ("tls", rest)) => format!("wss://{rest}").parse().ok(),
            (Scheme::WebSocket, (_, rest)) => format!("ws://{rest}").parse().ok(),
        }
    }
}
