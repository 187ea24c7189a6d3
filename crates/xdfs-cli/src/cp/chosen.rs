//! `--exclude` and the like for sources that are files: as if they were in a directory that is
//! copied.

use std::ffi::OsStr;

use xdfs::operations::path::file_name;
use xdfs::{Answer, Call, Code, Fault, FileKind, Filter, RemotePlace};

use crate::flags::CpFlags;
use crate::paths::time::nanoseconds_of;
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

/// The name of a source, and of a regular file the size and the modification time.
type NamedSource = (Vec<u8>, Option<(u64, i64)>);

fn is_left_out(connector: &Connector, filter: &Filter, word: &OsStr) -> Result<bool, Fault> {
    // A missing or unreadable file is reported when it is opened.
    let found = match Place::parse(connector.context.config()?, word)? {
        Place::Local(path) => {
            let name = path
                .file_name()
                .map(|name| name.as_encoded_bytes().to_vec());
            let found = path.metadata().ok().filter(|found| !found.is_dir());
            name.zip(found).map(|(name, found)| {
                let mtime_ns = found.modified().map_or(0, nanoseconds_of);
                (name, found.is_file().then_some((found.len(), mtime_ns)))
            })
        }
        Place::Remote(place) => look(connector, &place)?,
        Place::Standard => {
            let cause = "standard input has no name, size or time to choose by";
            return Err(Fault::new(Code::InvalidArgument, "plan the copy", cause)
                .hint("leave out --exclude, --max-size and the like"));
        }
    };
    Ok(found.is_some_and(|(name, file)| {
        let is_beyond = |(size, mtime_ns)| filter.leaves_out_file(size, mtime_ns);
        filter.leaves_out(&name, false) || file.is_some_and(is_beyond)
    }))
}

/// A source on a server; `None` for a directory, and what isn't there.
fn look(connector: &Connector, place: &RemotePlace) -> Result<Option<NamedSource>, Fault> {
    let Some(name) = file_name(&place.path) else {
        return Ok(None);
    };
    let client = connector.connect(place)?;
    let call = Call::Stat {
        path: place.path.clone(),
        follow: true,
    };
    let answer = client.call(call);
    connector.leave(place, client);
    Ok(match answer {
        Ok(Answer::Attributes(a)) if a.kind != FileKind::Directory => {
            let file = (a.kind == FileKind::File).then_some((a.size, a.mtime_ns));
            Some((name.to_vec(), file))
        }
        _ => None,
    })
}
