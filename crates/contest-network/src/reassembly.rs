//! Messages of one length in a stream that arrives in parts of any length.

/// Reassembles messages of one length from parts of any length.
pub(super) struct Reassembly {
    len: usize,
    /// The received part of an incomplete message.
    partial: Vec<u8>,
}

impl Reassembly {
    pub(super) fn new(len: usize) -> Reassembly {
        Reassembly { len, partial: Vec::with_capacity(len) }
    }

    /// Adds a part and calls `found` with each message that is now complete.
    #[inline(always)]
    pub(super) fn push(&mut self, mut part: &[u8], mut found: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            let (more, rest) = part.split_at(part.len().min(self.len - self.partial.len()));
            self.partial.extend_from_slice(more);
            if self.partial.len() < self.len {
                return;
            }
            found(&self.partial);
            self.partial.clear();
            part = rest;
        }
        let messages = part.chunks_exact(self.len);
        self.partial.extend_from_slice(messages.remainder());
        messages.for_each(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_reassembled_from_parts_of_any_length() {
        let stream: Vec<u8> = (0..60).collect();
        for (len, cut) in (1..=20).flat_map(|len| (1..=60).map(move |cut| (len, cut))) {
            let mut reassembly = Reassembly { len, partial: Vec::new() };
            let mut found = Vec::new();
            stream.chunks(cut).for_each(|part| reassembly.push(part, |message| found.push(message.to_vec())));
            assert_eq!(found, stream.chunks_exact(len).collect::<Vec<_>>(), "messages of {len} in parts of {cut}");
        }
    }
}
