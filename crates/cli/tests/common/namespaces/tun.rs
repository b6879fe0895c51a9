//! TUN devices: a network interface whose packets a program reads and writes.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;

use rustix::fs::OFlags;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Gives an open `/dev/net/tun` its interface.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
/// Packets of IP, without a link layer.
const IFF_TUN: i16 = 0x0001;
/// Packets without a header of the driver.
const IFF_NO_PI: i16 = 0x1000;

/// The kernel's `struct ifreq`, as `TUNSETIFF` uses it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: i16,
    unused: [u8; 22],
}

/// Creates an interface in a network namespace. Reads and writes of the file do not block. Each is
/// one packet. The interface is removed when the file is closed.
///
/// # Errors
/// The reason: missing rights, or a kernel without TUN.
pub(super) fn create(namespace: &Path, interface: &str) -> Result<File, String> {
    let create = || -> Result<File, String> {
        let namespace = File::open(namespace).map_err(|error| format!("{}: {error}", namespace.display()))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| format!("entering a network namespace: {error}"))?;
        open(interface).map_err(|error| format!("making a TUN device with /dev/net/tun: {error}"))
    };
    // A thread of its own, because it stays in the namespace.
    thread::scope(|scope| scope.spawn(create).join().unwrap_or_else(|_| Err(String::from("a panic"))))
}

/// Creates an interface in the network namespace of this thread.
fn open(interface: &str) -> std::io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open("/dev/net/tun")?;
    let mut request = Request { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, unused: [0; 22] };
    // The last byte stays 0.
    for (to, from) in request.name[..15].iter_mut().zip(interface.bytes()) {
        *to = from;
    }
    // SAFETY: `TUNSETIFF` reads and writes a `struct ifreq`, which `Request` is, of 40 bytes.
    unsafe { ioctl(&file, Updater::<TUNSETIFF, Request>::new(&mut request)) }?;
    Ok(file)
}
