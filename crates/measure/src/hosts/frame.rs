//! Frames: a packet as JSON after its length, an unsigned 32-bit number with the highest byte
//! first.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol::MAX_PACKET;

/// The maximum length of a packet in bytes: a packet of the child protocol, and what surrounds it.
pub(super) const MAX_LEN: usize = MAX_PACKET + 8 * 1024;

/// Writes one packet and flushes it.
///
/// # Errors
/// When the packet is too long, or the connection has closed.
pub(super) fn write(writer: &mut (impl Write + ?Sized), packet: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(packet).context("writing a packet")?;
    if text.len() > MAX_LEN {
        bail!("a packet of {} bytes: the maximum is {MAX_LEN}", text.len());
    }
    let mut frame = Vec::with_capacity(4 + text.len());
    frame.extend((text.len() as u32).to_be_bytes());
    frame.extend(text);
    // In one piece: no small segment waits for an acknowledgement.
    writer.write_all(&frame)?;
    Ok(writer.flush()?)
}

/// Reads one packet. Blocks until it is complete. `None` if the connection closed before its first
/// byte.
///
/// # Errors
/// When the connection fails or closes within a packet, and when the bytes are no packet of this
/// type.
pub(super) fn read<T: DeserializeOwned>(reader: &mut (impl Read + ?Sized)) -> Result<Option<T>> {
    let mut len = [0; 4];
    loop {
        match reader.read(&mut len[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    reader.read_exact(&mut len[1..]).context("the connection closed within a packet")?;
    let len = u32::from_be_bytes(len) as usize;
    if len > MAX_LEN {
        bail!("not a packet of a session: its length is {len} bytes, and the maximum is {MAX_LEN}");
    }
    let mut text = vec![0; len];
    reader.read_exact(&mut text).context("the connection closed within a packet")?;
    let packet = serde_json::from_slice(&text).with_context(|| {
        format!("not a packet of a session: {}", String::from_utf8_lossy(&text[..text.len().min(200)]))
    })?;
    Ok(Some(packet))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::hosts::packet::{FromPeer, ToPeer};

    #[test]
    fn packets_come_out_as_they_went_in_and_the_end_is_not_an_error() {
        let mut bytes = Vec::new();
        write(&mut bytes, &json!({"a": 1})).unwrap();
        write(&mut bytes, &json!("b")).unwrap();
        let mut reader = &bytes[..];
        assert_eq!(read::<Value>(&mut reader).unwrap(), Some(json!({"a": 1})));
        assert_eq!(read::<Value>(&mut reader).unwrap(), Some(json!("b")));
        assert_eq!(read::<Value>(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_packet_that_is_cut_off_or_too_long_is_an_error() {
        let mut bytes = Vec::new();
        write(&mut bytes, &json!("text")).unwrap();
        for len in 1..bytes.len() {
            let error = read::<Value>(&mut &bytes[..len]).unwrap_err();
            assert!(format!("{error:#}").contains("closed within a packet"), "{error:#}");
        }
        // Nothing is allocated for a length that is not allowed.
        let error = read::<Value>(&mut &b"HTTP/1.1 400 Bad Request"[..]).unwrap_err();
        assert!(format!("{error:#}").contains("the maximum is"), "{error:#}");
        assert!(write(&mut Vec::new(), &"x".repeat(MAX_LEN)).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
            framed.extend(&bytes);
            for bytes in [&bytes, &framed] {
                let _ = read::<ToPeer>(&mut &bytes[..]);
                let _ = read::<FromPeer>(&mut &bytes[..]);
            }
        }
    }
}
