//! System calls that differ between Linux and macOS.
//!
//! Both files have the same functions. What a system does not have is an error that says so, or is
//! done another way.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod macos;

#[cfg(target_os = "linux")]
pub(super) use self::linux::*;
#[cfg(not(target_os = "linux"))]
pub(super) use self::macos::*;
