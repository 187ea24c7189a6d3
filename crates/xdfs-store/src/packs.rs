//! Packs for stores without a faster way: one entry after the other, by the other methods of the
//! store.

use std::collections::HashSet;
use std::io::IoSlice;

use xdfs_proto::digest::DigestKind;
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, Owner, PackReader, PackRequest, PackWriter,
};
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{Code, Fault, Limits, SourceTag};

use crate::{PackOptions, SinkRequest, Store};

const READ: &str = "read";
const WRITE: &str = "write";
/// The permissions of owners: in a directory without them nothing could be written.
const OWNER_ALL: u32 = 0o700;
/// The set-user-id and set-group-id bits.
const SET_ID: u32 = 0o6000;

/// Does what [`Store::read_pack`] says, for stores whose entries have no extended attributes.
///
/// # Errors
/// As there.
pub fn read_pack<S: Store + ?Sized>(
    store: &S,
    root: &[u8],
    request: &PackRequest,
    pack: &mut PackWriter,
) -> Result<(), Fault> {
    for name in &request.names {
        let path = join(root, name);
        let entry = |metadata, content| Entry {
            path: name,
            metadata,
            content,
        };
        let fits = match read(store, &path, request) {
            Ok((found, bytes)) => {
                let content = match found.kind {
                    FileKind::File => match &bytes {
                        Some(bytes) => Content::File(bytes),
                        None => Content::Large(found.size),
                    },
                    FileKind::Directory => Content::Directory,
                    FileKind::Symlink => Content::Symlink(bytes.as_deref().unwrap_or_default()),
                    _ => Content::Failed(not_kept(READ, &path)),
                };
                pack.entry(&entry(metadata(&found, request), content))
            }
            Err(fault) if fault.code == Code::Cancelled => return Err(fault),
            Err(fault) => pack.entry(&entry(Metadata::default(), Content::Failed(fault))),
        };
        if !fits {
            break;
        }
    }
    Ok(())
}

/// The attributes of an entry, and the content of a small file, or the target of a link.
fn read<S: Store + ?Sized>(
    store: &S,
    path: &[u8],
    request: &PackRequest,
) -> Result<(Attributes, Option<Vec<u8>>), Fault> {
    let stat = Call::Stat {
        path: path.to_vec(),
        follow: request.follow,
    };
    let Answer::Attributes(found) = answer(store, &stat)? else {
        return Err(odd_answer(READ, path));
    };
    let bytes = match found.kind {
        FileKind::File if found.size <= u64::from(request.file_bytes_max) => {
            let mut source = store.open_source(path)?;
            let length = source.info().length.unwrap_or(found.size);
            if length > u64::from(request.file_bytes_max) {
                return Ok((found, None));
            }
            // At most `file_bytes_max`.
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
            let count = source.read_at(0, &mut bytes)?;
            bytes.truncate(count);
            source.verify_unchanged()?;
            Some(bytes)
        }
        FileKind::Symlink => {
            let path = path.to_vec();
            match answer(store, &Call::ReadLink { path: path.clone() })? {
                Answer::Target(target) => Some(target),
                _ => return Err(odd_answer(READ, &path)),
            }
        }
        _ => None,
    };
    Ok((found, bytes))
}

fn metadata(found: &Attributes, request: &PackRequest) -> Metadata<'static> {
    let keep = request.keep;
    Metadata {
        mode: u16::try_from(found.mode & 0o7777).ok(),
        mtime_ns: found.mtime(),
        atime_ns: keep.read_times.then_some(found.atime_ns),
        owner: keep.owner.then_some(Owner {
            uid: found.uid,
            gid: found.gid,
            names: None,
        }),
        ..Metadata::default()
    }
}

/// Does what [`Store::write_pack`] says. Replacing a link isn't atomic, files get owners and times
/// of the last access after their names, and entries with extended attributes are failures.
///
/// # Errors
/// As there.
pub fn write_pack<S: Store + ?Sized>(
    store: &S,
    root: &[u8],
    options: PackOptions,
    pack: &[u8],
) -> Result<Failures, Fault> {
    let limits = Limits::default();
    let entries = PackReader::new(pack, &limits).collect::<Result<Vec<_>, _>>();
    let entries = entries
        .map_err(|error| Fault::new(Code::MalformedFrame, WRITE, error.to_string()).path(root))?;
    let mut writing = Writing {
        store,
        root,
        options,
        made: HashSet::new(),
    };
    let mut failures = Failures::default();
    for (number, entry) in (0..).zip(&entries) {
        match writing.entry(entry) {
            Err(fault) if fault.code == Code::Cancelled => return Err(fault),
            Err(fault) => failures.push(number, fault),
            Ok(()) => {}
        }
    }
    Ok(failures)
}

/// A pack that is written.
struct Writing<'a, S: ?Sized> {
    store: &'a S,
    root: &'a [u8],
    options: PackOptions,
    /// Directories that are there.
    made: HashSet<Vec<u8>>,
}

impl<S: Store + ?Sized> Writing<'_, S> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        let path = join(self.root, entry.path);
        if !entry.metadata.xattrs.is_empty() {
            let cause = "this store keeps no extended attributes";
            return Err(Fault::new(Code::Unsupported, WRITE, cause).path(path));
        }
        if let Content::Directory = entry.content {
            let mode = mode(&entry.metadata).map(|mode| mode & !SET_ID | OWNER_ALL);
            return self.directory(&path, mode);
        }
        if let (Some(slash), false) = (
            path.iter().rposition(|byte| *byte == b'/'),
            entry.content == Content::Attributes,
        ) && slash > 0
        {
            self.directory(&path[..slash], None)?;
        }
        match &entry.content {
            Content::File(bytes) => return self.file(&path, bytes, &entry.metadata),
            Content::Symlink(target) => self.link(&Call::Symlink {
                target: target.to_vec(),
                path: path.clone(),
            })?,
            // A link has the metadata of its file.
            Content::HardLink(existing) => {
                return self.link(&Call::Link {
                    existing: join(self.root, existing),
                    path,
                });
            }
            Content::Attributes => {}
            Content::Failed(fault) => return Err(fault.clone()),
            Content::Large(_) => {
                let cause = "it is too large for a pack";
                return Err(Fault::new(Code::InvalidArgument, WRITE, cause).path(path));
            }
            _ => return Err(not_kept(WRITE, &path)),
        }
        let is_link = matches!(entry.content, Content::Symlink(_));
        self.metadata(&path, &entry.metadata, is_link)
    }

    fn directory(&mut self, path: &[u8], mode: Option<u32>) -> Result<(), Fault> {
        if self.made.contains(path) {
            return Ok(());
        }
        answer(
            self.store,
            &Call::MakeDirectory {
                path: path.to_vec(),
                mode,
                parents: true,
            },
        )?;
        self.made.insert(path.to_vec());
        Ok(())
    }

    fn file(&self, path: &[u8], bytes: &[u8], metadata: &Metadata<'_>) -> Result<(), Fault> {
        let mut opened = self.store.open_sink(&SinkRequest {
            path: path.to_vec(),
            name: Vec::new(),
            length: Some(bytes.len() as u64),
            offset: 0,
            tag: SourceTag::default(),
            mode: mode(metadata).map(|mode| mode & !SET_ID),
            mtime_ns: metadata.mtime_ns,
            digest: DigestKind::None,
            block_size: 1,
            overwrite: self.options.overwrite,
            resume: Resume::Never,
            sparse: metadata.sparse,
        })?;
        let written = opened
            .sink
            .write_at(0, &[IoSlice::new(bytes)])
            .and_then(|()| opened.sink.publish(bytes.len() as u64, &[]));
        if written.is_err() {
            // The first fault says more.
            let _ = opened.sink.discard();
        }
        written?;
        if metadata.owner.is_none() && metadata.atime_ns.is_none() {
            return Ok(());
        }
        self.metadata(path, metadata, false)
    }

    /// Makes a link, in place of another entry if that is wanted.
    fn link(&self, call: &Call) -> Result<(), Fault> {
        match answer(self.store, call) {
            Err(fault) if fault.code == Code::AlreadyExists && self.options.overwrite => {
                let path = call.path().to_vec();
                answer(self.store, &Call::RemoveFile { path })?;
                answer(self.store, call).map(drop)
            }
            made => made.map(drop),
        }
    }

    fn metadata(&self, path: &[u8], of: &Metadata<'_>, is_link: bool) -> Result<(), Fault> {
        let follow = !is_link;
        if let Some(owner) = &of.owner {
            self.owner(path, owner, follow)?;
        }
        // After the owner: a change of that takes away the set-id bits.
        if let Some(mode) = mode(of).filter(|_| !is_link) {
            answer(
                self.store,
                &Call::SetMode {
                    path: path.to_vec(),
                    mode,
                },
            )?;
        }
        if of.mtime_ns.is_some() || of.atime_ns.is_some() {
            answer(
                self.store,
                &Call::SetTimes {
                    path: path.to_vec(),
                    atime_ns: of.atime_ns,
                    mtime_ns: of.mtime_ns,
                    follow,
                },
            )?;
        }
        Ok(())
    }

    fn owner(&self, path: &[u8], owner: &Owner<'_>, follow: bool) -> Result<(), Fault> {
        let call = Call::SetOwner {
            path: path.to_vec(),
            uid: Some(owner.uid),
            gid: Some(owner.gid),
            follow,
        };
        answer(self.store, &call).map(drop)
    }
}

/// The permission bits of an entry: set-id bits come only together with the owner of the source.
fn mode(of: &Metadata<'_>) -> Option<u32> {
    let denied = if of.owner.is_some() { 0 } else { SET_ID };
    of.mode.map(|mode| u32::from(mode) & !denied)
}

/// Makes a call whose answer has one part.
fn answer<S: Store + ?Sized>(store: &S, call: &Call) -> Result<Answer, Fault> {
    let answered = store.call(call, &mut |_| Ok(()));
    answered.map_err(|fault| match fault.operation.is_empty() {
        true => Fault {
            operation: call.operation().to_owned(),
            ..fault
        },
        false => fault,
    })
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        (_, b"") => directory.to_vec(),
        (b"", _) => name.to_vec(),
        _ if directory.ends_with(b"/") => [directory, name].concat(),
        _ => [directory, b"/", name].concat(),
    }
}

fn not_kept(operation: &str, path: &[u8]) -> Fault {
    let cause = "this store has no entries of its kind";
    Fault::new(Code::Unsupported, operation, cause).path(path)
}

fn odd_answer(operation: &str, path: &[u8]) -> Fault {
    let cause = "the store has answered another call";
    Fault::new(Code::Internal, operation, cause).path(path)
}
