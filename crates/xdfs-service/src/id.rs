//! Ids of jobs: UUIDs of version 7, so that a later job has a greater id, in memory, in the
//! database and as text.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xdfs::{Code, Fault};

use crate::time::Time;

/// The id of a job. Not a secret, and no right by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
#[schema(value_type = String, format = "uuid")]
pub struct JobId(u128);

impl JobId {
    /// The id of a job that is submitted at this time.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(at: Time) -> Result<Self, Fault> {
        let mut random = [0; 10];
        getrandom::fill(&mut random).map_err(|error| {
            Fault::new(Code::Internal, "make the id of a job", error.to_string())
        })?;
        Ok(Self::from_parts(at, random))
    }

    fn from_parts(at: Time, random: [u8; 10]) -> Self {
        let milliseconds = u128::try_from(at.microseconds() / 1000).unwrap_or(0);
        let mut low = [0; 16];
        low[6..].copy_from_slice(&random);
        let random = u128::from_be_bytes(low);
        // Jobs of one millisecond are in their order too.
        let rest = u128::try_from(at.microseconds().rem_euclid(1000)).unwrap_or(0);
        let fraction = rest * 4096 / 1000;
        // 48 bits of time, the version, 12 more of time, the variant, 62 random bits.
        let high = (milliseconds & 0xffff_ffff_ffff) << 80 | 7 << 76 | fraction << 64;
        Self(high | 0b10 << 62 | random & 0x3fff_ffff_ffff_ffff)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        let parts = [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ];
        f.write_str(&parts.join("-"))
    }
}

impl FromStr for JobId {
    type Err = Fault;

    /// Reads an id as it is displayed, and in no other form.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let digits: String = text.chars().filter(|char| *char != '-').collect();
        let id = u128::from_str_radix(&digits, 16).map(Self);
        match id {
            Ok(id) if id.to_string() == text => Ok(id),
            _ => {
                let cause = "it isn't the id of a job";
                Err(Fault::new(Code::InvalidArgument, "understand", cause).path(text))
            }
        }
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The id of a schedule, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
#[schema(value_type = String, format = "uuid")]
pub struct ScheduleId(JobId);

impl ScheduleId {
    /// The id of a schedule that is made at this time.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(at: Time) -> Result<Self, Fault> {
        JobId::new(at).map(Self)
    }
}

impl fmt::Display for ScheduleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ScheduleId {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        text.parse().map(Self).map_err(|_| {
            let cause = "it isn't the id of a schedule";
            Fault::new(Code::InvalidArgument, "understand", cause).path(text)
        })
    }
}

impl Serialize for ScheduleId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ScheduleId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        JobId::deserialize(from).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_uuid_and_later_ones_are_greater() {
        let id = JobId::from_parts(Time::from_microseconds(1_700_000_000_123_456), [0xff; 10]);
        assert_eq!(id.to_string(), "018bcfe5-687b-774b-bfff-ffffffffffff");
        let later = JobId::from_parts(Time::from_microseconds(1_700_000_000_123_457), [0; 10]);
        assert_eq!(later.to_string(), "018bcfe5-687b-774f-8000-000000000000");
        assert!(later > id && later.to_string() > id.to_string());
    }

    #[test]
    fn only_its_own_text_is_read() {
        let text = "018bcfe5-687b-7fff-bfff-ffffffffffff";
        assert_eq!(
            text.parse::<JobId>().map(|id| id.to_string()).as_deref(),
            Ok(text)
        );
        let upper = text.to_uppercase();
        for other in [
            "",
            "-",
            "x",
            &text[1..],
            &text.replace('-', ""),
            &upper,
            "+18bcfe5",
        ] {
            assert!(other.parse::<JobId>().is_err(), "{other}");
        }
    }
}
