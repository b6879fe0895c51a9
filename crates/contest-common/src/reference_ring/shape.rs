//! The shape of a ring: the bytes of a slot and the number of slots.

use std::fmt;

/// The bytes of a cache line. A small slot never straddles two lines.
const LINE: usize = 64;

/// The length of a message and the number of messages in a ring.
///
/// Both ends must agree on it. Each `Shape` is valid: its sizes were computed without overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    slot: usize,
    slots: usize,
    stride: usize,
}

impl Shape {
    /// The highest total size of the slots in bytes: 4 GiB. A larger request is most likely a
    /// mistake.
    pub const MOST_BYTES: usize = 4 << 30;

    /// Creates a shape for at least `capacity` messages of `slot` bytes. The number of slots is
    /// rounded up to a power of two.
    ///
    /// # Errors
    ///
    /// If either is zero, or if the slots would take more than [`Shape::MOST_BYTES`].
    pub fn new(slot: usize, capacity: usize) -> Result<Self, ShapeError> {
        let error = ShapeError { slot, capacity };
        if slot == 0 || capacity == 0 {
            return Err(error);
        }
        let slots = capacity.checked_next_power_of_two().ok_or(error)?;
        let stride = Self::stride_for(slot).ok_or(error)?;
        match slots.checked_mul(stride) {
            Some(bytes) if bytes <= Self::MOST_BYTES => Ok(Self { slot, slots, stride }),
            _ => Err(error),
        }
    }

    /// Returns the distance between slots. Small slots share a cache line without crossing its end;
    /// a large slot has its lines to itself.
    fn stride_for(slot: usize) -> Option<usize> {
        if slot <= LINE {
            Some(slot.next_power_of_two().max(size_of::<u64>()))
        } else {
            slot.checked_next_multiple_of(LINE)
        }
    }

    /// The length of a message in bytes.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The number of slots, a power of two.
    #[inline]
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The distance from one slot to the next in bytes, a multiple of eight.
    #[inline]
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The total size of the slots in bytes, at most [`Shape::MOST_BYTES`].
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots * self.stride
    }
}

/// A ring of this shape is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeError {
    slot: usize,
    capacity: usize,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, capacity } = self;
        if *slot == 0 || *capacity == 0 {
            write!(f, "a ring of {capacity} slots of {slot} bytes holds nothing; use at least one of each")
        } else {
            let most = Shape::MOST_BYTES;
            write!(f, "a ring of {capacity} slots of {slot} bytes takes more than {most} bytes; lower one of them")
        }
    }
}

impl std::error::Error for ShapeError {}
