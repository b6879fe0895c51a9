//! The UDP packets of a link's measurement: the responder's key, the kind, and a sequence number.

/// The length of a packet without padding: with the headers it fits into the shortest Ethernet
/// frame.
pub(super) const PACKET: usize = 17;
/// The length of a packet of the loss measurement in bytes. It fits into every usual MTU.
pub(super) const LONG_PACKET: usize = 1200;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// The responder sends it back.
    Echo,
    /// The responder counts it.
    Count,
}

/// Writes a packet's head.
pub(super) fn write(place: &mut [u8; PACKET], key: u64, kind: PacketKind, sequence: u64) {
    place[..8].copy_from_slice(&key.to_be_bytes());
    place[8] = u8::from(kind == PacketKind::Count);
    place[9..].copy_from_slice(&sequence.to_be_bytes());
}

/// Reads a packet's head. `None` if it is no packet with this key.
pub(super) fn read(packet: &[u8], key: u64) -> Option<(PacketKind, u64)> {
    let [a, b, c, d, e, f, g, h, kind, sequence @ ..] = packet.first_chunk::<PACKET>()?;
    let kind = match kind {
        0 => PacketKind::Echo,
        1 => PacketKind::Count,
        _ => return None,
    };
    let has_key = [*a, *b, *c, *d, *e, *f, *g, *h] == key.to_be_bytes();
    has_key.then_some((kind, u64::from_be_bytes(*sequence)))
}
