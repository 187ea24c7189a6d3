//! The text form of a filter, as a part of that of a job.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{FileLimits, Filter, FilterRule};
use xdfs_proto::Limits;

#[derive(Default, Serialize, Deserialize)]
#[serde(rename = "Filter", deny_unknown_fields, default)]
struct FilterText {
    rules: Vec<FilterRule>,
    only: Option<Vec<ListedPath>>,
    limits: FileLimits,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct ListedPath(#[serde(with = "crate::text")] Vec<u8>);

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let only = self.only.as_ref().map(|only| {
            let mut paths: Vec<_> = only.paths.iter().cloned().map(ListedPath).collect();
            paths.sort();
            paths
        });
        let text = FilterText {
            rules: self.written.to_vec(),
            only,
            limits: self.limits,
        };
        text.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let FilterText {
            rules,
            only,
            limits,
        } = FilterText::deserialize(from)?;
        let filter = Self::new(&rules).map_err(D::Error::custom)?;
        let filter = filter.with_limits(limits);
        let is_long = |ListedPath(path): &ListedPath| path.len() > Limits::default().path_bytes_max;
        // No such path can be in an order, and a server looks at each directory above one.
        if only.iter().flatten().any(is_long) {
            return Err(D::Error::custom("a listed path is too long"));
        }
        Ok(match only {
            Some(paths) => filter.with_only(paths.into_iter().map(|ListedPath(path)| path)),
            None => filter,
        })
    }
}
