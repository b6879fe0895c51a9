//! Messages of one length in a stream that has no bounds, of which a library hands over pieces.

/// Messages of one length, in pieces of any.
pub(super) struct Reassembly {
    len: usize,
    /// The beginning of a message.
    begun: Vec<u8>,
}

impl Reassembly {
    pub(super) fn new(len: usize) -> Reassembly {
        Reassembly { len, begun: Vec::with_capacity(len) }
    }

    /// Finds the messages that are whole with this piece.
    #[inline(always)]
    pub(super) fn whole(&mut self, mut piece: &[u8], mut found: impl FnMut(&[u8])) {
        if !self.begun.is_empty() {
            let (more, rest) = piece.split_at(piece.len().min(self.len - self.begun.len()));
            self.begun.extend_from_slice(more);
            if self.begun.len() < self.len {
                return;
            }
            found(&self.begun);
            self.begun.clear();
            piece = rest;
        }
        let messages = piece.chunks_exact(self.len);
        self.begun.extend_from_slice(messages.remainder());
        messages.for_each(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_put_together_wherever_the_stream_is_cut() {
        let stream: Vec<u8> = (0..60).collect();
        for (len, cut) in (1..=20).flat_map(|len| (1..=60).map(move |cut| (len, cut))) {
            let mut pieces = Reassembly { len, begun: Vec::new() };
            let mut found = Vec::new();
            stream.chunks(cut).for_each(|piece| pieces.whole(piece, |message| found.push(message.to_vec())));
            assert_eq!(found, stream.chunks_exact(len).collect::<Vec<_>>(), "messages of {len} in pieces of {cut}");
        }
    }
}
