//! How the further messages of a run are found without a decoder: see [`crate::run`].

/// How the next message is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Length-prefixed, at most this long.
    Length { max_len: usize },
    /// In an unfragmented WebSocket frame.
    WebSocket { masked: bool, max_len: usize },
    /// Records of equal length.
    Records { length: usize },
    /// Datagrams of equal length; the last may be shorter.
    Equal { length: usize },
}
