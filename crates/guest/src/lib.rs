//! SDK for functions of Estafette pipelines (`estafette flow run`) in Rust.
//!
//! A function is a program for `wasm32-wasip1` (`wasm32-wasi` before Rust 1.78). It receives
//! messages from its input topic in batches. It sends messages to its output topics, each named by
//! its index in the YAML file. `docs/flow-abi.md` specifies the format of batches and the calls.
//! This crate implements them, so that a function only handles `&[u8]`.
//!
//! A processor passes a handler of messages to [`function!`]:
//!
//! ```
//! use estafette_guest::Outputs;
//!
//! fn upper_case(message: &[u8], outputs: &mut Outputs) {
//!     outputs.send(0, &message.to_ascii_uppercase());
//! }
//!
//! estafette_guest::function!(upper_case);
//! ```
//!
//! A closure can keep state. The block runs once, before the first message:
//!
//! ```
//! estafette_guest::function!({
//!     let mut count = 0;
//!     move |message, _| {
//!         count += 1;
//!         println!("message {count} has {} bytes", message.len());
//!     }
//! });
//! ```
//!
//! A sender has no input, and does its work in `main`. Its first argument has index 0, as there is
//! no program name before it.
//!
//! ```no_run
//! fn main() -> Result<(), estafette_guest::SendError> {
//!     for argument in std::env::args() {
//!         estafette_guest::send(0, argument.as_bytes())?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The crate also compiles for the build machine. There, [`testing`] replaces the host, so that a
//! function can be unit tested:
//!
//! ```
//! use estafette_guest::{testing::Harness, Outputs};
//!
//! fn upper_case(message: &[u8], outputs: &mut Outputs) {
//!     outputs.send(0, &message.to_ascii_uppercase());
//! }
//!
//! let mut harness = Harness::new(upper_case);
//! harness.message(b"abc");
//! assert_eq!(harness.take_sent(), [(0, b"ABC".to_vec())]);
//! ```
//!
//! # Blocking and panics
//!
//! A send blocks while its topic is full, if the topic's overflow policy is `block`. A panic traps:
//! the host logs its text, and restarts the function as the YAML file says.
#![warn(missing_docs)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod abi;
mod error;
mod messages;
mod outputs;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use abi::Outgoing;
pub use error::SendError;
pub use outputs::Outputs;

/// Called by [`function!`] and [`exports!`] only.
#[doc(hidden)]
pub mod exports {
    pub use crate::abi::{batch, buffer};
}

/// Makes the program a function that calls the given handler with each message.
///
/// The handler is an expression whose type implements `FnMut(&[u8], &mut Outputs)`: the name of a
/// `fn`, a closure, or a block that ends with one. The expression is evaluated once, before the
/// first message.
///
/// Expands to `main`, which calls [`run`], and to [`exports!`].
///
/// ```
/// use estafette_guest::Outputs;
///
/// estafette_guest::function!(|message: &[u8], outputs: &mut Outputs| outputs.send(0, message));
/// ```
#[macro_export]
macro_rules! function {
    ($handler:expr) => {
        fn main() {
            $crate::run($handler);
        }

        $crate::exports!();
    };
}

/// Exports the functions by which the host delivers batches. Use it in a program with its own
/// `main`.
///
/// `main` must call [`run`] before it returns.
///
/// ```no_run
/// fn main() -> Result<(), std::num::ParseIntError> {
///     let divisor: usize = std::env::args().next().as_deref().unwrap_or("1").parse()?;
///     let mut index = 0;
///     estafette_guest::run(move |message, outputs| {
///         if index % divisor == 0 {
///             outputs.send(0, message);
///         }
///         index += 1;
///     });
///     Ok(())
/// }
///
/// estafette_guest::exports!();
/// ```
#[macro_export]
macro_rules! exports {
    () => {
        #[cfg(target_family = "wasm")]
        #[no_mangle]
        extern "C" fn estafette_buffer(capacity: u32) -> *mut u8 {
            $crate::exports::buffer(capacity)
        }

        #[cfg(target_family = "wasm")]
        #[no_mangle]
        extern "C" fn estafette_batch(pointer: *const u8, length: u32, count: u32) {
            $crate::exports::batch(pointer, length, count)
        }
    };
}

/// Registers the handler of messages. Returns at once; the host delivers messages after `main` has
/// returned.
///
/// The program must also invoke [`exports!`]. [`function!`] does both. A second call replaces the
/// handler.
pub fn run(handler: impl FnMut(&[u8], &mut Outputs<'_>) + 'static) {
    abi::register(outputs::batch_handler(handler));
    #[cfg(not(target_family = "wasm"))]
    eprintln!("this function runs in a pipeline: build it for wasm32-wasip1, see `estafette flow run`");
}

/// Sends one message to the output topic with this index. Blocks while the topic is full.
///
/// # Errors
/// If the topic does not exist or the message is too long for it. Nothing is sent then.
pub fn send(topic: u32, data: &[u8]) -> Result<(), SendError> {
    SendError::of_send(abi::send(topic, data))
}

/// Sends several messages in one call of the host, which is faster than one call each. Blocks while
/// their topics are full.
///
/// ```
/// use estafette_guest::{send_all, Outgoing, SendError};
///
/// # fn example() -> Result<(), SendError> {
/// send_all(&[Outgoing::new(0, b"to the first topic"), Outgoing::new(1, b"to the second")])
/// # }
/// ```
///
/// # Errors
/// If a topic does not exist or a message is too long for it. None of the messages is sent then.
pub fn send_all(messages: &[Outgoing<'_>]) -> Result<(), SendError> {
    SendError::of_send(abi::send_batch(messages))
}

/// Sends a reply on the function's input stream, for example a WebSocket.
///
/// # Errors
/// If the function has no input stream, or the reply is too long for it.
pub fn reply(data: &[u8]) -> Result<(), SendError> {
    SendError::of_reply(abi::reply(data))
}
