//! Files of a server that are worked on in place, by a real client of a real server.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[path = "../support/mod.rs"]
#[expect(
    dead_code,
    reason = "not all of it is about files that are worked on in place"
)]
mod support;

#[cfg(unix)]
mod again;
#[cfg(unix)]
mod exported;
#[cfg(unix)]
mod locks;
#[cfg(target_os = "linux")]
mod pipes;
#[cfg(unix)]
mod random;
#[cfg(unix)]
mod rights;
#[cfg(unix)]
mod work;

use xdfs::{Client, OpenOptions, RemoteFile};

/// For reading and writing; made if it isn't there.
fn both() -> OpenOptions {
    OpenOptions {
        read: true,
        write: true,
        create: true,
        ..OpenOptions::default()
    }
}

fn open(client: &Client, path: &str, options: &OpenOptions) -> RemoteFile {
    client.open_file(path.as_bytes(), options).unwrap()
}

/// Bytes that differ from place to place.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let byte = |i: u64| {
        let mixed = (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as u8
    };
    (0..length as u64).map(byte).collect()
}
