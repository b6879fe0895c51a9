//! Test helper: decodes a stream that arrives in pieces, as it does from a socket.

use super::websocket::Close;
use super::{Decoder, Fault, Item, Kind};

/// A decoded item, with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The handshake is over, and this is to be sent.
    Open(Vec<u8>),
    Message(Kind, Vec<u8>),
    Ping(Vec<u8>),
    Pong,
    Close(Close),
}

/// Decodes a stream that arrives in pieces of these sizes; the last piece is the rest.
pub(crate) fn read(mut decoder: Decoder, stream: &[u8], pieces: &[usize]) -> (Vec<Found>, Result<(), Fault>) {
    let (mut buffered, mut found, mut rest) = (Vec::new(), Vec::new(), stream);
    for piece in pieces.iter().copied().chain([usize::MAX]) {
        let (now, later) = rest.split_at(piece.min(rest.len()));
        buffered.extend_from_slice(now);
        rest = later;
        while !buffered.is_empty() {
            let step = match decoder.decode(&mut buffered) {
                Ok(step) => step,
                Err(fault) => return (found, Err(fault)),
            };
            match step.item {
                Item::Partial { need } if step.consumed == 0 => {
                    assert!(need > buffered.len(), "it waits for {need} bytes, and has {}", buffered.len());
                    break;
                }
                Item::Partial { .. } => {}
                Item::Message { at, kind } => found.push(Found::Message(kind, buffered[at].to_vec())),
                Item::Assembled { kind } => found.push(Found::Message(kind, std::mem::take(decoder.assembled()))),
                Item::Ping { at } => found.push(Found::Ping(buffered[at].to_vec())),
                Item::Pong => found.push(Found::Pong),
                Item::Close(close) => found.push(Found::Close(close)),
                Item::Open { reply, .. } => found.push(Found::Open(reply)),
            }
            buffered.drain(..step.consumed);
        }
    }
    (found, Ok(()))
}
