//! `--exclude` and the like for sources that are files: as if they were in a directory that is
//! copied.

use std::ffi::OsStr;

use xdfs::operations::path::file_name;
use xdfs::{Code, Fault, Filter};

use super::removal::{path_at, path_here};
use crate::flags::CpFlags;
use crate::place::Place;
use crate::session::Connector;

/// Removes the sources that the filter leaves out. Directories stay: it chooses among their
/// entries.
///
/// # Errors
/// A rule makes no sense, a source is a stream, or a server can't be asked.
pub(super) fn leave_out_files(connector: &Connector, flags: &mut CpFlags) -> Result<(), Fault> {
    if flags.filter.is_empty() {
        return Ok(());
    }
    let filter = flags.filter.filter()?;
    let mut kept = Vec::with_capacity(flags.places.sources.len());
    for word in std::mem::take(&mut flags.places.sources) {
        if !is_left_out(connector, &filter, &word)? {
            kept.push(word);
        }
    }
    flags.places.sources = kept;
    Ok(())
}

fn is_left_out(connector: &Connector, filter: &Filter, word: &OsStr) -> Result<bool, Fault> {
    // A missing or unreadable file is reported when it is opened.
    match Place::parse(connector.context.config()?, word)? {
        Place::Local(path) => {
            let source = path_here(path.as_os_str().as_encoded_bytes().to_vec());
            let name = path.file_name();
            Ok(name.is_some_and(|name| source.is_left_out(filter, name.as_encoded_bytes())))
        }
        Place::Remote(place) => {
            let Some(name) = file_name(&place.path) else {
                return Ok(false);
            };
            let client = connector.connect(&place)?;
            let is_left_out = path_at(&client, place.path.clone()).is_left_out(filter, name);
            connector.leave(&place, client);
            Ok(is_left_out)
        }
        Place::Standard => {
            let cause = "standard input has no name, size or time to choose by";
            Err(Fault::new(Code::InvalidArgument, "plan the copy", cause)
                .hint("leave out --exclude, --max-size and the like"))
        }
    }
}
