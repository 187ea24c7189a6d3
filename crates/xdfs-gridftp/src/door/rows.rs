//! Listings as bytes, made page by page, so that a directory of any size takes bounded memory.

use std::sync::Arc;

use xdfs_proto::path::{Answer, Attributes, Call, Entry, FileKind};
use xdfs_proto::{Code, Fault};
use xdfs_store::{NamePattern, Store};

use crate::command::Form;
use crate::facts::{Row, can_be_listed};
use crate::session::Listing;

/// Entries of a page.
const PAGE_ENTRIES: u32 = 1000;
/// Most directories of a tree that wait to be listed.
const WAITING_MAX: usize = 100_000;
/// Bytes of the largest listing within a reply.
const HERE_BYTES_MAX: usize = 1 << 20;

/// The rest of a directory to be listed.
#[derive(Debug)]
struct Folder {
    path: Vec<u8>,
    /// What stands before the names.
    prefix: Vec<u8>,
    cursor: Vec<u8>,
}

/// Makes the rows of a listing.
#[derive(Debug)]
pub(super) struct Rows {
    store: Arc<dyn Store>,
    form: Form,
    now_ns: i64,
    waiting: Vec<Folder>,
    /// The row of a listed file, or of the listed directory itself.
    first: Vec<u8>,
    /// Of the names in the directory, only those that match are wanted.
    pattern: Option<NamePattern>,
    /// Names that can't stand in a row.
    left_out: u64,
}

/// The rows of a listing in a reply.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) rows: Vec<Vec<u8>>,
    pub(super) left_out: u64,
}

impl Rows {
    /// Begins with a listing.
    ///
    /// # Errors
    /// There is nothing with this path, or it can't be looked at.
    pub(super) fn new(
        store: Arc<dyn Store>,
        listing: &Listing,
        now_ns: i64,
    ) -> Result<Self, Fault> {
        let Listing { form, path, prefix } = listing;
        let found = stat(&*store, path, true);
        let mut rows = Self {
            store,
            form: *form,
            now_ns,
            waiting: Vec::new(),
            first: Vec::new(),
            pattern: None,
            left_out: 0,
        };
        let attributes = match found {
            Ok(attributes) => attributes,
            Err(fault) => {
                let is_missing = fault.code == Code::NotFound;
                let takes_patterns = matches!(form, Form::Long | Form::Names);
                let split = split(path).filter(|_| is_missing && takes_patterns);
                let (folder, pattern) = split.ok_or(fault)?;
                rows.pattern = Some(NamePattern::new(pattern));
                return rows.begun(folder, prefix);
            }
        };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let is_folder = attributes.kind == FileKind::Directory;
        let row = Row {
            name: if is_folder { b"." } else { name },
            attributes: &attributes,
            link: None,
            role: is_folder.then_some("cdir"),
        };
        if !is_folder || rows.form == Form::Facts {
            let mut first = Vec::new();
            rows.push(row, &mut first);
            rows.first = first;
        }
        match is_folder {
            true => rows.begun(path, b""),
            false => Ok(rows),
        }
    }

    /// Lists the first names of a directory. Now, so that one that can't be read is told before the
    /// transfer begins.
    fn begun(mut self, path: &[u8], prefix: &[u8]) -> Result<Self, Fault> {
        self.waiting.push(Folder {
            path: path.to_vec(),
            prefix: prefix.to_vec(),
            cursor: Vec::new(),
        });
        let mut bytes = std::mem::take(&mut self.first);
        self.page(&mut bytes)?;
        self.first = bytes;
        Ok(self)
    }

    /// Names so far that can't stand in a row.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether there are no more rows.
    pub(super) fn is_at_end(&self) -> bool {
        self.first.is_empty() && self.waiting.is_empty()
    }

    /// Appends the next rows: perhaps none, as few names may match, so that whoever no longer
    /// wants them is noticed.
    ///
    /// # Errors
    /// A directory can't be read.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        out.append(&mut self.first);
        if out.is_empty() {
            self.page(out)?;
        }
        Ok(())
    }

    /// All rows, for a reply.
    ///
    /// # Errors
    /// A directory can't be read, or there are too many rows.
    pub(super) fn all(mut self) -> Result<Listed, Fault> {
        let mut bytes = Vec::new();
        while !self.is_at_end() {
            let mut more = Vec::new();
            self.fill(&mut more)?;
            bytes.append(&mut more);
            if bytes.len() > HERE_BYTES_MAX {
                let cause = "the listing is too large for a reply";
                let fault = Fault::new(Code::Unsupported, "list", cause);
                return Err(fault.hint("use MLSD, which has a data connection"));
            }
        }
        let rows = bytes.split(|byte| *byte == b'\n');
        let rows = rows.map(|row| row.strip_suffix(b"\r").unwrap_or(row));
        let rows = rows.filter(|row| !row.is_empty());
        Ok(Listed {
            rows: rows.map(<[u8]>::to_vec).collect(),
            left_out: self.left_out,
        })
    }

    /// Appends the rows of a page.
    fn page(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Some(folder) = self.waiting.pop() else {
            return Ok(());
        };
        let call = Call::List {
            path: folder.path.clone(),
            cursor: folder.cursor.clone(),
            entries_max: PAGE_ENTRIES,
        };
        let mut found: Vec<Entry> = Vec::new();
        let last = self.store.call(&call, &mut |part| {
            if let Answer::Entries { entries, .. } = part {
                found.extend(entries);
            }
            Ok(())
        })?;
        let mut next = None;
        if let Answer::Entries { entries, cursor } = last {
            found.extend(entries);
            next = cursor;
        }
        if let Some(cursor) = next {
            self.waiting.push(Folder {
                cursor,
                path: folder.path.clone(),
                prefix: folder.prefix.clone(),
            });
        }
        for entry in found {
            self.entry(&folder, entry, out)?;
        }
        Ok(())
    }

    fn entry(&mut self, folder: &Folder, entry: Entry, out: &mut Vec<u8>) -> Result<(), Fault> {
        let Entry {
            name,
            mut attributes,
        } = entry;
        let is_wanted = |pattern: &NamePattern| pattern.stands_for(&name);
        if !self.pattern.as_ref().is_none_or(is_wanted) {
            return Ok(());
        }
        let path = joined(&folder.path, &name);
        let shown = joined(&folder.prefix, &name);
        if !can_be_listed(&shown) {
            self.left_out += 1;
            return Ok(());
        }
        let mut link = None;
        if attributes.kind == FileKind::Symlink && self.form != Form::Names {
            link = target_of(&*self.store, &path);
            // A link to a file can be retrieved like one. Clients would follow one to a directory
            // in circles.
            if matches!(self.form, Form::Facts | Form::Tree | Form::Catalogue)
                && let Ok(there) = stat(&*self.store, &path, true)
                && there.kind == FileKind::File
            {
                attributes = there;
            }
        }
        if matches!(self.form, Form::Tree | Form::Catalogue)
            && attributes.kind == FileKind::Directory
        {
            if self.waiting.len() >= WAITING_MAX {
                let cause = "the tree has too many directories for one listing";
                return Err(Fault::new(Code::LimitExceeded, "list the tree", cause));
            }
            self.waiting.push(Folder {
                path,
                prefix: shown.clone(),
                cursor: Vec::new(),
            });
        }
        let row = Row {
            name: &shown,
            attributes: &attributes,
            link: link.as_deref(),
            role: None,
        };
        self.push(row, out);
        Ok(())
    }

    fn push(&self, row: Row<'_>, out: &mut Vec<u8>) {
        match self.form {
            Form::Facts | Form::Tree | Form::Catalogue => row.facts(out),
            Form::Long => row.list(self.now_ns, out),
            Form::Names => out.extend_from_slice(row.name),
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() || folder.ends_with(b"/") {
        b""
    } else {
        b"/"
    };
    [folder, slash, name].concat()
}

/// Where a link leads, if that can be told.
pub(super) fn target_of(store: &dyn Store, path: &[u8]) -> Option<Vec<u8>> {
    let path = path.to_vec();
    match store.call(&Call::ReadLink { path }, &mut |_| Ok(())) {
        Ok(Answer::Target(target)) => Some(target),
        _ => None,
    }
}

/// The attributes of a path.
pub(super) fn stat(store: &dyn Store, path: &[u8], follow: bool) -> Result<Attributes, Fault> {
    let path = path.to_vec();
    let call = Call::Stat { path, follow };
    match store.call(&call, &mut |_| Ok(()))? {
        Answer::Attributes(attributes) => Ok(attributes),
        _ => Err(Fault::new(
            Code::Internal,
            call.operation(),
            "no attributes came",
        )),
    }
}

/// The directory and the pattern of a path whose last part has a wildcard.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    let (folder, pattern) = (&path[..slash], &path[slash + 1..]);
    let folder: &[u8] = if folder.is_empty() { b"/" } else { folder };
    NamePattern::is_wildcard(pattern).then_some((folder, pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_part_has_wildcards() {
        assert_eq!(split(b"/a/*.c"), Some((&b"/a"[..], &b"*.c"[..])));
        assert_eq!(split(b"/x[1]"), Some((&b"/"[..], &b"x[1]"[..])));
        for path in [&b"/*/a"[..], b"/a", b"/", b""] {
            assert_eq!(split(path), None);
        }
    }
}
