//! The attributes of `ptcp`.

use std::time::Duration;

use super::wire::{PIECE_BYTES_MAX, STREAMS_MAX};
use crate::attribute::Attribute;

/// The options of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The number of streams: of an opener those that it asks for, of an acceptor the most that it
    /// grants.
    pub(super) streams: u16,
    /// The most payload of one piece.
    pub(super) piece: usize,
    /// Bytes unacknowledged, and bytes held for the reader; by default they follow the number of
    /// streams.
    pub(super) window: Option<u64>,
    /// How long a bundle lives without any stream.
    pub(super) patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            streams: 4,
            piece: PIECE_BYTES_MAX,
            window: None,
            patience: Duration::from_secs(20),
        }
    }
}

impl Options {
    /// The window for a number of streams. Within one machine it is small enough for the caches.
    pub(super) fn window(&self, streams: u16, is_local: bool) -> u64 {
        let each = if is_local { 256 << 10 } else { 1 << 20 };
        let usual = (4 << 20) + u64::from(streams) * each;
        self.window.unwrap_or(usual)
    }
}

fn within<T: std::str::FromStr + PartialOrd>(text: &str, least: T, most: T) -> Option<T> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number)?;
    (least <= number && number <= most).then_some(number)
}

/// The table of attributes.
pub(super) const ATTRIBUTES: &[Attribute<Options>] = &[
    Attribute {
        name: "n",
        takes: "a number of streams from 1 to 64",
        set: |options, text| {
            options.streams = within(text, 1, STREAMS_MAX as u16)?;
            Some(())
        },
        text: |options| {
            let is_set = options.streams != Options::default().streams;
            is_set.then(|| options.streams.to_string())
        },
    },
    Attribute {
        name: "piece",
        takes: "bytes from 1024 to 262144",
        set: |options, text| {
            options.piece = within(text, 1024, PIECE_BYTES_MAX)?;
            Some(())
        },
        text: |options| {
            let is_set = options.piece != Options::default().piece;
            is_set.then(|| options.piece.to_string())
        },
    },
    Attribute {
        name: "window",
        takes: "bytes from 65536 to 1073741824",
        set: |options, text| {
            options.window = Some(within(text, 64 << 10, 1 << 30)?);
            Some(())
        },
        text: |options| options.window.map(|window| window.to_string()),
    },
    Attribute {
        name: "patience",
        takes: "seconds from 1 to 3600",
        set: |options, text| {
            options.patience = Duration::from_secs(within(text, 1, 3600)?);
            Some(())
        },
        text: |options| {
            let is_set = options.patience != Options::default().patience;
            is_set.then(|| options.patience.as_secs().to_string())
        },
    },
];
