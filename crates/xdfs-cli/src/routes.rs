//! The file of `xdfs relay --routes`.

use std::path::Path;

use serde::Deserialize;
use xdfs::settings::ConfigText;
use xdfs::{Fault, PARCEL_LIFE_S_MAX, RelayRoute, RemotePlace};

use crate::flags::PARCEL_LIFE_S;
use crate::paths::criteria::parse_age;

const HINT: &str = "`xdfs relay --help` shows such a file at --routes";

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoutesFile {
    route: Vec<RouteConfig>,
}

/// A route.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteConfig {
    name: String,
    to: RouteTarget,
    overwrite: Option<bool>,
    expire: Option<Life>,
}

/// The life of a parcel, as in `xdfs cp --expire`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Life(u32);

impl TryFrom<String> for Life {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let life_s = u32::try_from(parse_age(&text)?.as_secs()).unwrap_or(u32::MAX);
        match life_s {
            1..=PARCEL_LIFE_S_MAX => Ok(Self(life_s)),
            _ => Err("the time has to be from 1 s to 30 days".into()),
        }
    }
}

/// A URL.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct RouteTarget(RemotePlace);

impl TryFrom<String> for RouteTarget {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let read = text.parse().map(Self);
        read.map_err(|fault: Fault| format!("{}; {}", fault.cause, fault.hint))
    }
}

impl RouteConfig {
    fn route(self) -> RelayRoute {
        let Life(life_s) = self.expire.unwrap_or(Life(PARCEL_LIFE_S));
        RelayRoute {
            name: self.name,
            to: self.to.0,
            // As the programs do that leave files in it.
            overwrite: self.overwrite.unwrap_or(true),
            life_s,
        }
    }
}

/// Reads the routes.
///
/// # Errors
/// The file can't be read, or has a mistake.
pub(crate) fn read(path: &Path) -> Result<Vec<RelayRoute>, Fault> {
    let text = ConfigText::read(path, HINT)?;
    // The first error is enough for a file of a few lines.
    let file: RoutesFile = text.parse().map_err(|mut faults| faults.remove(0))?;
    Ok(file.route.into_iter().map(RouteConfig::route).collect())
}
