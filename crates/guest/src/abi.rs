//! The calls between host and function: the only file with `unsafe`.
//!
//! `docs/flow-abi.md` specifies them under "The batched ABI". On other targets than WASM,
//! [`crate::testing`] replaces the host.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

/// Handles a batch: its bytes, and the number of its records.
pub(crate) type BatchHandler = Box<dyn FnMut(&[u8], u32)>;

/// A message for [`send_all`](crate::send_all): its bytes, and the index of its topic.
///
/// On WASM it has the layout of an entry of the host's list: topic, address and length of 4 bytes
/// each.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Outgoing<'a> {
    topic: u32,
    data: *const u8,
    length: usize,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Outgoing<'a> {
    /// A message to the output topic with this index. The bytes are not copied.
    pub const fn new(topic: u32, data: &'a [u8]) -> Self {
        Self { topic, data: data.as_ptr(), length: data.len(), borrowed: PhantomData }
    }

    /// The index of the topic.
    pub const fn topic(&self) -> u32 {
        self.topic
    }

    /// The bytes of the message.
    pub fn data(&self) -> &'a [u8] {
        // SAFETY: address and length are those of the slice that was passed to `new`, borrowed for
        // 'a.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}

impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("topic", &self.topic).field("data", &self.data()).finish()
    }
}

/// The functions of the host's module `estafette`.
#[cfg(target_family = "wasm")]
mod imports {
    use super::Outgoing;

    #[link(wasm_import_module = "estafette")]
    extern "C" {
        pub(super) fn send(topic: u32, data: *const u8, length: usize) -> i32;
        pub(super) fn send_batch(list: *const Outgoing<'_>, count: usize) -> i32;
        pub(super) fn reply(data: *const u8, length: usize) -> i32;
    }
}

#[cfg(target_family = "wasm")]
pub(crate) fn send(topic: u32, data: &[u8]) -> i32 {
    // SAFETY: the host reads `length` bytes at `data`, during the call only.
    unsafe { imports::send(topic, data.as_ptr(), data.len()) }
}

#[cfg(target_family = "wasm")]
pub(crate) fn send_batch(list: &[Outgoing<'_>]) -> i32 {
    // SAFETY: the host reads `count` entries at `list` and the bytes that they borrow, during the call only.
    unsafe { imports::send_batch(list.as_ptr(), list.len()) }
}

#[cfg(target_family = "wasm")]
pub(crate) fn reply(data: &[u8]) -> i32 {
    // SAFETY: the host reads `length` bytes at `data`, during the call only.
    unsafe { imports::reply(data.as_ptr(), data.len()) }
}

#[cfg(not(target_family = "wasm"))]
pub(crate) use crate::testing::{reply, send, send_batch};

/// The address of a slice.
pub(crate) fn address(slice: &[u8]) -> usize {
    slice.as_ptr() as usize
}

thread_local! {
    /// The buffer to which the host writes batches. Made of words, so that its address is a
    /// multiple of 8.
    static BUFFER: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static HANDLER: RefCell<Option<BatchHandler>> = const { RefCell::new(None) };
}

/// Registers the handler of batches.
pub(crate) fn register(handler: BatchHandler) {
    HANDLER.with(|registered| *registered.borrow_mut() = Some(handler));
}

/// Implements `estafette_buffer`: returns the address of a buffer of at least `capacity` bytes, or
/// null if there is no memory for it.
pub fn buffer(capacity: u32) -> *mut u8 {
    let words = capacity as usize / 8 + 1;
    BUFFER.with(|buffer| {
        let mut buffer = buffer.borrow_mut();
        if buffer.len() < words {
            *buffer = Vec::new();
            if buffer.try_reserve_exact(words).is_err() {
                return std::ptr::null_mut();
            }
            buffer.resize(words, 0);
        }
        buffer.as_mut_ptr().cast()
    })
}

/// Implements `estafette_batch`: passes a batch of `count` records, which is `length` bytes long,
/// to the handler. `pointer` must be the address of the buffer.
pub fn batch(pointer: *const u8, length: u32, count: u32) {
    BUFFER.with(|buffer| {
        let buffer = buffer.borrow();
        assert_eq!(pointer, buffer.as_ptr().cast(), "the host gave another buffer than estafette_buffer returned");
        let length = length as usize;
        assert!(length <= buffer.len() * 8, "the host gave a batch that is longer than the buffer");
        // SAFETY: the bytes lie in `buffer`, which is initialised, and borrowed for as long as the
        // slice is in use. The host writes them only between two batches.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast(), length) };
        HANDLER.with(|handler| {
            let mut handler = handler.borrow_mut();
            let handler = handler.as_mut().expect("main returned without a call of estafette_guest::run");
            handler(bytes, count);
        });
    });
}
