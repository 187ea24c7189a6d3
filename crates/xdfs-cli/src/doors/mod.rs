//! The doors of `xdfs serve` beside that of xDFS: each has a table in the file of `--config`.

mod gridftp;

use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use xdfs::doors::{Door, HostPort};

pub(crate) use gridftp::GridftpTable;

/// The table of a door.
pub(crate) trait DoorTable: DeserializeOwned + Default {
    /// The lines of the table in the help of `xdfs serve`.
    const HELP: &'static str;

    /// The settings of the door: the address of its flag goes before that of the table, and
    /// relative paths begin at `base`.
    fn door(self, flag: Option<HostPort>, base: Option<&Path>) -> Arc<dyn Door>;
}

/// The door of a table, or of its flag alone; `None` if neither is given.
pub(crate) fn door<T: DoorTable>(
    table: Option<T>,
    flag: Option<HostPort>,
    base: Option<&Path>,
) -> Option<Arc<dyn Door>> {
    let is_wanted = table.is_some() || flag.is_some();
    is_wanted.then(|| table.unwrap_or_default().door(flag, base))
}

/// The lines of all tables.
pub(crate) fn help() -> String {
    [GridftpTable::HELP].concat()
}
