//! The settings of a route.

use xdfs_proto::relay::PARCEL_LIFE_S_MAX;
use xdfs_proto::{Code, Fault};

use super::target;
use crate::paths::join;
use crate::remote::RemotePlace;

/// A directory of a relay, and where its files go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayRoute {
    /// The name of the directory, beside those of exports.
    pub name: String,
    /// The directory at the target.
    pub to: RemotePlace,
    /// Replace files there, for programs that do so where they put files.
    pub overwrite: bool,
    /// Seconds after which a file that isn't delivered is given up.
    pub life_s: u32,
}

impl RelayRoute {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the name isn't one component of a path, the target is none for a
    /// relay, or the time is none for a parcel.
    pub fn check(&self) -> Result<(), Fault> {
        const OPERATION: &str = "read the routes";
        let name = self.name.as_str();
        let invalid = |cause| Err(Fault::new(Code::InvalidArgument, OPERATION, cause).path(name));
        if !is_name(name.as_bytes()) || name.starts_with(".xdfs-") {
            return invalid("it is no name of a directory");
        }
        if !(1..=PARCEL_LIFE_S_MAX).contains(&self.life_s) {
            return invalid("the time has to be from 1 s to 30 days");
        }
        target::check_server(&self.to).map_err(|fault| Fault {
            operation: OPERATION.into(),
            ..fault.path(name)
        })
    }

    /// The target of a file.
    pub(super) fn file(&self, name: &[u8]) -> RemotePlace {
        self.to.at(join(&self.to.path, name))
    }
}

/// Whether something is one component of a path.
pub(super) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}
