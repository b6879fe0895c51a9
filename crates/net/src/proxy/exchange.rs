//! Test helper: a dialogue with a proxy whose bytes arrive in pieces.

use super::{ProxyFailure, Step, Tunnel};

/// What one dialogue sends, and how it ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) sent: Vec<Vec<u8>>,
    /// How many bytes the dialogue consumed until the proxy had connected, `None` if it has not
    /// yet, or its failure.
    pub(crate) end: Result<Option<usize>, ProxyFailure>,
}

/// Passes `input` to a dialogue in pieces of these sizes; the last piece is the rest.
pub(crate) fn run(tunnel: &Tunnel, input: &[u8], pieces: &[usize]) -> Exchange {
    let (mut dialogue, first) = tunnel.begin();
    let (mut sent, mut at, mut arrived) = (vec![first], 0, 0);
    for piece in pieces.iter().copied().chain([usize::MAX]) {
        arrived += piece.min(input.len() - arrived);
        while at < arrived {
            match dialogue.receive(&input[at..arrived]) {
                Err(failure) => return Exchange { sent, end: Err(failure) },
                Ok((consumed, step)) => {
                    at += consumed;
                    match step {
                        Step::Receive => assert_eq!(at, arrived, "it waits for more, and has not taken all"),
                        Step::Send(bytes) => sent.push(bytes),
                        Step::Connected => return Exchange { sent, end: Ok(Some(at)) },
                    }
                }
            }
        }
    }
    Exchange { sent, end: Ok(None) }
}
