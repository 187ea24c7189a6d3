//! The record protection of TLS 1.3 (RFC 8446), for connections whose handshake a library has done
//! and that then move more bytes than its own interface is made for. Nothing here does I/O.
//!
//! - [`record`]: one [`Direction`](record::Direction) of a connection: its key and its records.
//! - [`secret`]: the [`TrafficSecret`](secret::TrafficSecret) that the key of a direction comes
//!   from, and the next one after a KeyUpdate.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod record;
pub mod secret;

/// The name of an alert (RFC 8446, section 6), or its number if it has none.
#[must_use]
pub fn alert(number: u8) -> String {
    match rustls::AlertDescription::from(number) {
        rustls::AlertDescription::Unknown(number) => number.to_string(),
        known => format!("{known:?}"),
    }
}
