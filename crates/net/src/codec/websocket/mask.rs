//! WebSocket masking: RFC 6455, section 5.3. Byte `i` of a payload is XORed with byte `i mod 4` of
//! the key.

use std::io;

/// Masks or unmasks `bytes`; the first of them is byte `offset` of the payload.
#[inline]
pub(crate) fn apply(bytes: &mut [u8], key: [u8; 4], offset: usize) {
    // The key, rotated to start at the first of `bytes`, twice.
    let turned = u32::from_le_bytes(key).rotate_right(8 * (offset % 4) as u32);
    let wide = u64::from(turned) << 32 | u64::from(turned);
    // Eight bytes at a time; the compiler vectorizes this to sixteen or more.
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_le_bytes(*chunk) ^ wide).to_le_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(wide.to_le_bytes()) {
        *byte ^= key;
    }
}

/// How many bytes of keys are requested at once: for a connection, and for a batch.
const FEW: usize = 256;
const MANY: usize = 4096;

/// Unpredictable keys, as the RFC requires. One system call provides many of them.
pub(crate) struct Keys {
    pool: Box<[u8]>,
    next: usize,
}

impl Keys {
    pub(crate) fn new() -> Keys {
        Keys { pool: vec![0; FEW].into(), next: FEW }
    }

    pub(crate) fn many() -> Keys {
        Keys { pool: vec![0; MANY].into(), next: MANY }
    }

    /// Returns the next key, and requests new random bytes if there is none.
    ///
    /// # Errors
    ///
    /// If the system cannot provide random bytes.
    #[inline]
    pub(crate) fn next(&mut self) -> io::Result<[u8; 4]> {
        loop {
            match self.try_next() {
                Some(key) => return Ok(key),
                None => self.refill()?,
            }
        }
    }

    /// Returns the next key that needs no system call.
    #[inline(always)]
    pub(crate) fn try_next(&mut self) -> Option<[u8; 4]> {
        let key = self.pool.get(self.next..)?.first_chunk()?;
        self.next += key.len();
        Some(*key)
    }

    /// Requests new random bytes if none are left.
    ///
    /// # Errors
    ///
    /// As [`Keys::next`].
    #[cold]
    pub(crate) fn refill(&mut self) -> io::Result<()> {
        if self.next == self.pool.len() {
            getrandom::fill(&mut self.pool[..]).map_err(io::Error::other)?;
            self.next = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn masking_follows_the_rfc_however_the_payload_is_cut(
            payload in prop::collection::vec(any::<u8>(), 0..100), key: [u8; 4], cut in 0_usize..100,
        ) {
            let expected: Vec<u8> = payload.iter().enumerate().map(|(i, byte)| byte ^ key[i % 4]).collect();
            let cut = cut.min(payload.len());
            let mut masked = payload.clone();
            apply(&mut masked[..cut], key, 0);
            apply(&mut masked[cut..], key, cut);
            prop_assert_eq!(masked, expected);
        }
    }

    #[test]
    fn keys_differ() {
        let mut keys = Keys::new();
        let mut seen: Vec<_> = (0..200).map(|_| keys.next().unwrap()).collect();
        seen.sort();
        seen.dedup();
        assert!(seen.len() > 195);
    }
}
