//! Greets each message: `7` becomes `Hello, message 7`.

use std::slice;
use std::sync::Mutex;

#[link(wasm_import_module = "estafette")]
extern "C" {
    /// Sends a message to the output topic with this index. 0 means that it is sent.
    fn send(topic: u32, data: *const u8, length: usize) -> i32;
}

/// The function's work. Change this part.
fn handle(message: &[u8]) {
    let greeting = format!("Hello, message {}", String::from_utf8_lossy(message));
    emit(0, greeting.as_bytes());
}

fn emit(topic: u32, data: &[u8]) {
    // SAFETY: the host reads `length` bytes at `data` before it returns.
    let result = unsafe { send(topic, data.as_ptr(), data.len()) };
    assert_eq!(result, 0, "the host refused a message");
}

/// The buffer to which the host writes messages. Made of words, so that it begins at a multiple of
/// 8.
static BUFFER: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn main() {}

/// Called by the host to get a buffer of `capacity` bytes.
#[no_mangle]
pub extern "C" fn estafette_buffer(capacity: usize) -> *mut u64 {
    let mut buffer = BUFFER.lock().unwrap();
    buffer.resize((capacity + 7) / 8, 0);
    buffer.as_mut_ptr()
}

/// Called by the host when it has written `count` messages to the buffer. Each is a length of 4
/// bytes, 4 bytes to ignore, and the payload, padded to a multiple of 8.
#[no_mangle]
pub extern "C" fn estafette_batch(pointer: *const u8, length: usize, count: usize) {
    // SAFETY: the host passes bytes of the buffer, which nobody changes during this call.
    let mut records = unsafe { slice::from_raw_parts(pointer, length) };
    for _ in 0..count {
        let (header, rest) = records.split_at(8);
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        handle(&rest[..length]);
        records = &rest[(length + 7) / 8 * 8..];
    }
}
