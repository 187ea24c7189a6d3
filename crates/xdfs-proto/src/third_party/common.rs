//! Terms of all copies between two acceptors: their identifiers and states, and the acceptors'
//! addresses.

use std::fmt;
use std::str::FromStr;

use crate::wire::{DecodeError, Reader, Writer, check_most};

/// Longest life of a capability in seconds: a day, the most that clocks and queues need.
pub const LIFE_S_MAX: u32 = 24 * 3600;
/// Longest text of a capability in bytes.
pub const CAPABILITY_BYTES_MAX: usize = 256;
/// Most addresses of the other acceptor in an order.
pub const ADDRESSES_MAX: usize = 16;
/// Longest address in bytes: a name of 255, a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 261;

/// The identifier of a copy: 16 random bytes chosen by the initiator. Text form: 32 hexadecimal
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CopyId(pub [u8; 16]);

impl fmt::Display for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for CopyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for CopyId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = u128::from_str_radix(text, 16).ok();
        let is_id = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = number.filter(|_| is_id);
        let number = number.ok_or("the id of a copy has 32 hexadecimal digits")?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// The session with the other acceptor isn't open yet.
    Connecting,
    /// The session is open.
    Moving,
    /// The file is at its target.
    Done,
    /// It failed before the session with the other acceptor was open: another way may work.
    Unreachable,
    /// It failed after that.
    Failed,
}

impl CopyState {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Moving => "moving",
            Self::Done => "done",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Unreachable | Self::Failed)
    }

    /// Whether there is a fault.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Unreachable | Self::Failed)
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Self::Connecting => 0,
            Self::Moving => 1,
            Self::Done => 2,
            Self::Unreachable => 3,
            Self::Failed => 4,
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8("state of a copy")? {
            0 => Self::Connecting,
            1 => Self::Moving,
            2 => Self::Done,
            3 => Self::Unreachable,
            4 => Self::Failed,
            _ => return Err(DecodeError::Invalid("state of a copy")),
        })
    }
}

pub(super) fn decode_addresses(r: &mut Reader<'_>) -> Result<Vec<String>, DecodeError> {
    let count = usize::from(r.u8("count of addresses")?);
    check_most("count of addresses", count, ADDRESSES_MAX)?;
    let mut read = || r.text(ADDRESS_BYTES_MAX, "address");
    (0..count).map(|_| read()).collect()
}

pub(super) fn encode_addresses(addresses: &[String], w: &mut Writer<'_>) {
    w.u8(u8::try_from(addresses.len()).unwrap_or(u8::MAX));
    for address in addresses {
        w.text(address, ADDRESS_BYTES_MAX);
    }
}

/// Checks the capability of an order, and the addresses of the other acceptor.
pub(super) fn check_way(capability: &str, addresses: &[String]) -> Result<(), DecodeError> {
    check_most("capability", capability.len(), CAPABILITY_BYTES_MAX)?;
    check_most("count of addresses", addresses.len(), ADDRESSES_MAX)?;
    if addresses.is_empty() {
        return Err(DecodeError::Invalid("count of addresses"));
    }
    let longest = addresses.iter().map(String::len).max();
    check_most("address", longest.unwrap_or(0), ADDRESS_BYTES_MAX)
}

pub(super) fn check_life(life_s: u32) -> Result<(), DecodeError> {
    match life_s {
        1..=LIFE_S_MAX => Ok(()),
        _ => Err(DecodeError::Invalid("life of a capability")),
    }
}
