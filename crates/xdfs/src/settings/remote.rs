//! The settings of a server as they are written, and the values that have a form of their own.

use std::fmt;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use xdfs_proto::Fault;

use super::size::{parse_block_size, parse_rate, parse_window};
use crate::remote::RemotePlace;
use crate::security::{Fingerprint, Level};

/// Most channels of a session that can be asked for.
pub const CHANNELS_MAX: u32 = 4096;

/// A `[remote.NAME]` as it is written.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "expected a table with the settings of a server"
)]
pub(super) struct RemoteText {
    #[serde(deserialize_with = "url")]
    pub(super) url: RemotePlace,
    pub(super) key: Option<PathBuf>,
    #[serde(default)]
    pub(super) agent: bool,
    pub(super) password_file: Option<PathBuf>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) ticket_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) anonymous: bool,
    pub(super) cert: Option<PathBuf>,
    pub(super) cert_key: Option<PathBuf>,
    pub(super) ca: Option<PathBuf>,
    #[serde(default, deserialize_with = "fingerprint")]
    pub(super) pin: Option<Fingerprint>,
    #[serde(default)]
    pub(super) known_only: bool,
    pub(super) protect: Option<LevelText>,
    #[serde(default)]
    pub(super) insecure: bool,
    pub(super) ssh: Option<String>,
    pub(super) remote_program: Option<String>,
    // Those of `SessionSettings`: a flattened struct would take unknown settings.
    #[serde(default, deserialize_with = "channels")]
    pub(super) channels: Option<u32>,
    #[serde(default, deserialize_with = "block_size")]
    pub(super) block_size: Option<u32>,
    #[serde(default, deserialize_with = "window")]
    pub(super) window: Option<u32>,
    pub(super) retries: Option<u32>,
    #[serde(default, deserialize_with = "rate")]
    pub(super) limit_rate: Option<u64>,
    pub(super) share: Option<bool>,
}

/// A level as it is written.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LevelText {
    Private,
    Safe,
    Clear,
    Unauthenticated,
}

impl From<LevelText> for Level {
    fn from(text: LevelText) -> Self {
        match text {
            LevelText::Private => Self::Private,
            LevelText::Safe => Self::Safe,
            LevelText::Clear => Self::Clear,
            LevelText::Unauthenticated => Self::Unauthenticated,
        }
    }
}

fn url<'de, D: Deserializer<'de>>(from: D) -> Result<RemotePlace, D::Error> {
    let text = String::deserialize(from)?;
    let place: RemotePlace = text.parse().map_err(|fault: Fault| {
        let hint = "write xdfs://[user@]host[:port]/path";
        D::Error::custom(format!("the URL can't be read: {}; {hint}", fault.cause))
    })?;
    if place.invitation != Default::default() {
        let cause = "a ticket or a pin in the URL: set `ticket_file` or `pin`";
        return Err(D::Error::custom(cause));
    }
    if place.path.starts_with(b"mem:") {
        let cause = "the URL names a built-in store of the server, not a directory";
        return Err(D::Error::custom(cause));
    }
    Ok(place)
}

fn fingerprint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Fingerprint>, D::Error> {
    let text = String::deserialize(from)?;
    let fault = |fault: Fault| D::Error::custom(format!("{}; {}", fault.cause, fault.hint));
    text.parse().map(Some).map_err(fault)
}

pub(super) fn channels<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let channels = u32::deserialize(from)?;
    if !(1..=CHANNELS_MAX).contains(&channels) {
        let cause = format!("a session has from 1 to {CHANNELS_MAX} channels");
        return Err(D::Error::custom(cause));
    }
    Ok(Some(channels))
}

pub(super) fn block_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    amount(from, parse_block_size)
}

pub(super) fn window<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    amount(from, parse_window)
}

pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    amount(from, parse_rate)
}

/// A number, or text as for the flag of the same name.
fn amount<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = Amount::deserialize(from)?.to_string();
    parse(&text).map(Some).map_err(D::Error::custom)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, or text such as \"1M\"")]
enum Amount {
    Number(u64),
    Text(String),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
