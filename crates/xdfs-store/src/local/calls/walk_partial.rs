//! A walk of the unfinished transfers in a whole tree, for the server's own use.

use std::io;
use std::ops::ControlFlow;

use xdfs_proto::path::{Answer, PartialFile};
use xdfs_sys::fs::FileKind;

use super::super::path;
use super::super::store::LocalStore;
use super::{Paths, unfinished};

/// Called with the path of the target, and what there is of it.
pub(in super::super) type Take<'a> = dyn FnMut(&[u8], &PartialFile) -> ControlFlow<()> + 'a;

/// Passes on the unfinished transfers in and beneath a rooted store, without following links.
/// Returns how many directories could not be read.
pub(in super::super) fn each_partial(store: &LocalStore, take: &mut Take<'_>) -> u64 {
    let paths = Paths { store };
    let mut unread = 0;
    let mut waiting = vec![b"/".to_vec()];
    while let Some(directory) = waiting.pop() {
        match in_directory(&paths, &directory, &mut waiting, take) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            Err(()) => unread += 1,
        }
    }
    unread
}

/// The same in one directory; the ones in it are added to `waiting`.
fn in_directory(
    paths: &Paths<'_>,
    directory: &[u8],
    waiting: &mut Vec<Vec<u8>>,
    take: &mut Take<'_>,
) -> Result<ControlFlow<()>, ()> {
    let dir = match paths.open(directory) {
        Ok(dir) => dir,
        Err(error) if is_gone(&error) => return Ok(ControlFlow::Continue(())),
        Err(_) => return Err(()),
    };
    let join = |name: &[u8]| match directory {
        b"/" => [b"/", name].concat(),
        directory => [directory, b"/", name].concat(),
    };
    let mut has_partial = false;
    let read = dir.each_name(None, &mut |name, kind, _| {
        has_partial |= path::stem_of_hidden(name).is_some();
        let kind = kind.or_else(|| dir.meta_of(name).ok().flatten().map(|meta| meta.kind));
        if kind == Some(FileKind::Directory) {
            waiting.push(join(name));
        }
        ControlFlow::Continue(())
    });
    drop(dir);
    let mut after = Vec::new();
    while has_partial {
        let Ok(Answer::Partial { files, more }) = unfinished::list(paths, directory, &after) else {
            return Err(());
        };
        for file in &files {
            if take(&join(&file.name), file).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        has_partial = more;
        after = files.last().map_or(after, |last| last.name.clone());
    }
    read.map(|()| ControlFlow::Continue(())).map_err(drop)
}

fn is_gone(error: &xdfs_sys::fs::ResolveError) -> bool {
    matches!(error, xdfs_sys::fs::ResolveError::Io(error) if matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ))
}
