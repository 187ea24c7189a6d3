//! The places of jobs, and their text form.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Error as _, MapAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xdfs_proto::{Code, Fault};

use crate::local_path::path_bytes;
use crate::operations::path;
use crate::remote::{RemotePlace, percent_decode};

/// The text of a standard stream, and of memory.
const STANDARD: &str = "-";
const MEMORY: &str = "mem:";
/// The beginning of paths of this machine that need to be percent-encoded.
const FILE: &str = "file:";

/// A place that a job reads, writes or removes.
///
/// Its text form is a path of this machine, a URL, `-` or `mem:`. A path that isn't UTF-8, or that
/// would be taken for one of the others, is written as a `file:` URL, or as `file:` and the
/// percent-encoded path if that is relative. A place on a server with a profile is an object with
/// the fields `url` and `profile`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobPlace {
    /// A path on the machine that runs the job. One that isn't absolute begins in the working
    /// directory of its process.
    Local(PathBuf),
    /// No storage: zeros as a source, nothing as a target.
    Memory,
    /// A path on a server.
    Server(RemotePlace),
    /// Standard input as a source, standard output as a target.
    Standard,
}

/// A place on a server for which a program has several settings.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiled {
    url: String,
    profile: String,
}

impl JobPlace {
    /// Its text, without a profile.
    ///
    /// # Errors
    /// A server that has secrets, or that no URL names.
    fn text(&self) -> Result<String, Fault> {
        match self {
            Self::Local(path) => {
                let bytes = path_bytes(path);
                match String::from_utf8(bytes) {
                    Ok(text) if is_plain(&text) => Ok(text),
                    Ok(text) => Ok(encoded(text.as_bytes())),
                    Err(error) => Ok(encoded(error.as_bytes())),
                }
            }
            Self::Memory => Ok(MEMORY.to_owned()),
            Self::Server(place) => url(place),
            Self::Standard => Ok(STANDARD.to_owned()),
        }
    }
}

/// Whether a path stands for itself.
fn is_plain(path: &str) -> bool {
    path != STANDARD
        && !path.starts_with(MEMORY)
        && !path.starts_with(FILE)
        && path::of_file_url(path.as_bytes()).is_none()
        && !RemotePlace::is_remote(path)
}

fn encoded(path: &[u8]) -> String {
    // Two slashes would begin the name of a host.
    let host = if path.starts_with(b"/") { "//" } else { "" };
    format!("{FILE}{host}{}", RemotePlace::percent_encoded(path))
}

/// The URL of a place, without its profile.
fn url(place: &RemotePlace) -> Result<String, Fault> {
    const OPERATION: &str = "write the place as text";
    if has_secret(place) {
        return Err(secret(OPERATION, place));
    }
    let text = match &place.invitation.pin {
        Some(pin) => format!("{place}?pin={pin}"),
        None => place.to_string(),
    };
    let plain = RemotePlace {
        profile: None,
        ..place.clone()
    };
    // What the URL leaves out can't be left out.
    match text.parse::<RemotePlace>() {
        Ok(read) if read == plain => Ok(text),
        _ => {
            let fault = Fault::new(Code::InvalidArgument, OPERATION, "no URL names it");
            Err(fault.path(place.to_string()))
        }
    }
}

fn has_secret(place: &RemotePlace) -> bool {
    place.invitation.password.is_some() || place.invitation.ticket.is_some()
}

/// The fault of a place with a secret, which it doesn't show.
fn secret(operation: &str, place: &RemotePlace) -> Fault {
    let cause = "it has a password or a ticket, and the text of a job has no secrets";
    Fault::new(Code::InvalidArgument, operation, cause)
        .path(place.to_string())
        .hint("leave it out, and give it to the session when the job starts")
}

impl FromStr for JobPlace {
    type Err = Fault;

    /// Reads the text form, of a place without a profile.
    fn from_str(text: &str) -> Result<Self, Fault> {
        if RemotePlace::is_remote(text) {
            let place: RemotePlace = text.parse()?;
            return match has_secret(&place) {
                true => Err(secret("read the place", &place)),
                false => Ok(Self::Server(place)),
            };
        }
        let path = match text {
            STANDARD => return Ok(Self::Standard),
            MEMORY => return Ok(Self::Memory),
            _ => text,
        };
        let invalid =
            |cause: &str| Fault::new(Code::InvalidArgument, "read the place", cause).path(text);
        if path.is_empty() {
            return Err(invalid("it is empty"));
        }
        if path.starts_with(MEMORY) {
            return Err(invalid("no name follows 'mem:' here"));
        }
        let decoded = path::of_file_url(path.as_bytes()).or_else(|| {
            let encoded = path.strip_prefix(FILE)?;
            Some(percent_decode(encoded).ok_or("a percent sign is misused"))
        });
        let bytes = decoded.unwrap_or_else(|| Ok(path.as_bytes().to_vec()));
        let bytes = bytes.map_err(invalid)?;
        let path = xdfs_sys::fs::path_from_bytes(&bytes);
        let path = path.map_err(|error| invalid(&error.to_string()))?;
        Ok(Self::Local(path))
    }
}

impl Serialize for JobPlace {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let text = self.text().map_err(S::Error::custom)?;
        match self {
            Self::Server(RemotePlace {
                profile: Some(profile),
                ..
            }) => Profiled {
                url: text,
                profile: profile.clone(),
            }
            .serialize(to),
            _ => to.serialize_str(&text),
        }
    }
}

impl<'de> Deserialize<'de> for JobPlace {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PlaceVisitor)
    }
}

struct PlaceVisitor;

impl<'de> Visitor<'de> for PlaceVisitor {
    type Value = JobPlace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path, a URL, or a URL with a profile")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<JobPlace, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<JobPlace, M::Error> {
        let Profiled { url, profile } = Profiled::deserialize(MapAccessDeserializer::new(map))?;
        match url.parse::<JobPlace>().map_err(M::Error::custom)? {
            JobPlace::Server(place) => Ok(JobPlace::Server(RemotePlace {
                profile: Some(profile),
                ..place
            })),
            _ => Err(M::Error::custom("only a place on a server has a profile")),
        }
    }
}
