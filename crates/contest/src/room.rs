//! How many messages what lies between two processes takes while nobody receives.

use std::os::fd::AsFd;

use rustix::io::{Errno, ioctl_fionbio, write};

/// The most that is tried: more than this is no limit.
const MOST: usize = 1 << 18;

/// How many messages of this length a descriptor takes while nobody reads from its other end.
pub(crate) fn written(to: impl AsFd, len: usize) -> Option<u64> {
    ioctl_fionbio(&to, true).ok()?;
    let message = vec![0; len];
    let mut bytes = 0;
    while bytes / len < MOST {
        match write(&to, &message) {
            Ok(written) => bytes += written,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => return None,
        }
    }
    Some((bytes / len) as u64)
}

#[cfg(test)]
mod tests {
    use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place};
    use estafette_measure::spec::{Runtime, Scope, Wait};

    #[test]
    fn what_takes_bytes_is_filled_with_them() {
        let cell = |pattern| Cell {
            scope: Scope::Process,
            pattern,
            payload: Payload::Bytes(4096),
            producers: 1,
            capacity: 1024,
            runtime: Runtime::Thread,
            wait: Wait::Block,
            place: Place::Free,
            load: Load::Saturated,
        };
        let registry = crate::registry();
        let room = |name: &str| {
            let case = Case { mechanism: name.to_owned(), cell: cell(Pattern::Stream) };
            registry.get(name).unwrap().room(&case)
        };
        assert_eq!(room("process/pipe"), Some(16), "64 KiB, as pipe(7) says");
        assert_eq!(room("process/shm-mutex"), Some(1024));
        assert!(room("process/unix-stream").is_some_and(|room| room > 0));
        assert!(room("process/unix-dgram").is_some_and(|room| room > 0));
    }
}
