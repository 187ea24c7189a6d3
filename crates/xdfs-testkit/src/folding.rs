//! A file system in memory that doesn't tell names apart which differ only in case, and keeps the
//! spelling in which a name was made: as those of other systems do by default. By FUSE, so that
//! the kernel's own rules about names are the ones that are tested. Its synchronisation may take a
//! time. Mostly only root may mount it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request,
    SessionACL, TimeOrNow, WriteFlags,
};

/// Nothing is remembered by the kernel: a name may have another spelling the next time.
const NO_TIME: Duration = Duration::ZERO;
const BLOCK_BYTES: u32 = 4096;
/// What it says that is free.
const BLOCKS: u64 = 1 << 20;

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
pub struct FoldingDisk {
    at: std::path::PathBuf,
    session: Option<BackgroundSession>,
}

impl FoldingDisk {
    /// Mounts an empty one on a directory that is there.
    ///
    /// # Errors
    /// This user can't mount, or the kernel has no FUSE.
    pub fn mount(at: &Path) -> io::Result<Self> {
        Self::mount_slow(at, Duration::ZERO)
    }

    /// Mounts one that needs so long for each synchronisation of a file or a directory, during
    /// which it does nothing else.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount).
    pub fn mount_slow(at: &Path, sync_time: Duration) -> io::Result<Self> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("xdfs-folding".into()),
            MountOption::DefaultPermissions,
        ];
        config.acl = SessionACL::All;
        let session = fuser::spawn_mount(Disk::new(sync_time), at, &config)?;
        Ok(Self {
            at: at.to_owned(),
            session: Some(session),
        })
    }
}

impl Drop for FoldingDisk {
    fn drop(&mut self) {
        // Lazily, in case that a failed test still holds a file there.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        drop(self.session.take());
    }
}

struct Node {
    attr: FileAttr,
    /// The content of a file, or where a link leads.
    data: Vec<u8>,
    /// By folded names: the spelling, and the number.
    children: BTreeMap<String, (OsString, u64)>,
    parent: u64,
}

struct Disk {
    nodes: Mutex<Nodes>,
    sync_time: Duration,
}

struct Nodes {
    nodes: HashMap<u64, Node>,
    next: u64,
}

fn folded(name: &OsStr) -> String {
    name.to_string_lossy().to_lowercase()
}

impl Nodes {
    fn node(&mut self, number: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&number).ok_or(Errno::ENOENT)
    }

    fn find(&mut self, parent: u64, name: &OsStr) -> Result<u64, Errno> {
        let children = &self.node(parent)?.children;
        let found = children.get(&folded(name)).map(|(_, number)| *number);
        found.ok_or(Errno::ENOENT)
    }

    fn attr(&mut self, number: u64) -> Result<FileAttr, Errno> {
        Ok(self.node(number)?.attr)
    }

    /// Makes something that isn't there.
    fn make(
        &mut self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        (kind, mode): (FileType, u32),
        data: &[u8],
    ) -> Result<FileAttr, Errno> {
        if self.find(parent, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let number = self.next;
        self.next += 1;
        let node = Node::new(number, parent, kind, mode, (request.uid(), request.gid()));
        self.nodes.insert(number, node);
        let node = self.node(number)?;
        node.data = data.to_vec();
        node.attr.size = data.len() as u64;
        self.name(number, parent, name)?;
        self.attr(number)
    }

    /// Gives a node a name that nothing has.
    fn name(&mut self, number: u64, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let above = self.node(parent)?;
        let entry = (name.to_owned(), number);
        above.children.insert(folded(name), entry);
        above.attr.mtime = SystemTime::now();
        self.node(number)?.parent = parent;
        Ok(())
    }

    /// Takes a name away.
    fn remove(&mut self, parent: u64, name: &OsStr, is_directory: bool) -> Result<(), Errno> {
        let number = self.find(parent, name)?;
        let node = self.node(number)?;
        match (node.attr.kind == FileType::Directory, is_directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            _ => {}
        }
        if !node.children.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        node.attr.nlink = node.attr.nlink.saturating_sub(1);
        let above = self.node(parent)?;
        above.children.remove(&folded(name));
        above.attr.mtime = SystemTime::now();
        Ok(())
    }

    fn rename(
        &mut self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        replaces: bool,
    ) -> Result<(), Errno> {
        let number = self.find(parent, name)?;
        let is_directory = self.attr(number)?.kind == FileType::Directory;
        let mut spelling = new_name.to_owned();
        match self.find(new_parent, new_name) {
            Ok(there) if there == number => {}
            Ok(_) if !replaces => return Err(Errno::EEXIST),
            Ok(_) => {
                // The name that is there stays as it is spelled.
                let above = self.node(new_parent)?;
                if let Some((there, _)) = above.children.get(&folded(new_name)) {
                    spelling.clone_from(there);
                }
                self.remove(new_parent, new_name, is_directory)?;
            }
            Err(_) => {}
        }
        let above = self.node(parent)?;
        above.children.remove(&folded(name));
        above.attr.mtime = SystemTime::now();
        self.name(number, new_parent, &spelling)
    }
}

impl Node {
    fn new(number: u64, parent: u64, kind: FileType, mode: u32, owner: (u32, u32)) -> Self {
        let now = SystemTime::now();
        Self {
            attr: FileAttr {
                ino: INodeNo(number),
                size: 0,
                blocks: 0,
                atime: now,
                mtime: now,
                ctime: now,
                crtime: now,
                kind,
                perm: u16::try_from(mode & 0o7777).unwrap_or(0),
                nlink: 1,
                uid: owner.0,
                gid: owner.1,
                rdev: 0,
                blksize: BLOCK_BYTES,
                flags: 0,
            },
            data: Vec::new(),
            children: BTreeMap::new(),
            parent,
        }
    }
}

impl Disk {
    fn new(sync_time: Duration) -> Self {
        let mut nodes = HashMap::new();
        nodes.insert(1, Node::new(1, 1, FileType::Directory, 0o755, (0, 0)));
        Self {
            nodes: Mutex::new(Nodes { nodes, next: 2 }),
            sync_time,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entered(reply: ReplyEntry, made: Result<FileAttr, Errno>) {
    match made {
        Ok(attr) => reply.entry(&NO_TIME, &attr, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn done(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut nodes = self.lock();
        let found = nodes.find(parent.0, name);
        entered(reply, found.and_then(|number| nodes.attr(number)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.lock().attr(ino.0) {
            Ok(attr) => reply.attr(&NO_TIME, &attr),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let time = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        };
        let mut nodes = self.lock();
        let node = match nodes.node(ino.0) {
            Ok(node) => node,
            Err(error) => return reply.error(error),
        };
        let attr = &mut node.attr;
        if let Some(mode) = mode {
            attr.perm = u16::try_from(mode & 0o7777).unwrap_or(0);
        }
        attr.uid = uid.unwrap_or(attr.uid);
        attr.gid = gid.unwrap_or(attr.gid);
        attr.atime = atime.map_or(attr.atime, time);
        attr.mtime = mtime.map_or(attr.mtime, time);
        if let Some(size) = size {
            node.data.resize(usize::try_from(size).unwrap_or(0), 0);
            node.attr.size = node.data.len() as u64;
        }
        reply.attr(&NO_TIME, &node.attr);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.lock().node(ino.0) {
            Ok(node) => reply.data(&node.data),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        // Of the bits of kinds, those of a named pipe.
        let kind = match mode & 0o170_000 {
            0o010_000 => FileType::NamedPipe,
            _ => FileType::RegularFile,
        };
        let what = (kind, mode & !umask);
        let made = self.lock().make(request, (parent.0, name), what, b"");
        entered(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let what = (FileType::Directory, mode & !umask);
        let made = self.lock().make(request, (parent.0, name), what, b"");
        entered(reply, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.lock().remove(parent.0, name, false));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.lock().remove(parent.0, name, true));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let what = (FileType::Symlink, 0o777);
        let target = target.as_os_str().as_encoded_bytes();
        let made = self.lock().make(request, (parent.0, name), what, target);
        entered(reply, made);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let replaces = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        done(reply, self.lock().rename(from, to, replaces));
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut nodes = self.lock();
        let linked = match nodes.find(parent.0, name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(_) => nodes.name(ino.0, parent.0, name).and_then(|()| {
                nodes.node(ino.0)?.attr.nlink += 1;
                nodes.attr(ino.0)
            }),
        };
        entered(reply, linked);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.lock().node(ino.0) {
            Ok(node) => {
                let length = node.data.len();
                let begin = usize::try_from(offset).unwrap_or(length).min(length);
                let end = begin.saturating_add(size as usize).min(length);
                reply.data(&node.data[begin..end]);
            }
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.lock().node(ino.0) {
            Ok(node) => {
                let begin = usize::try_from(offset).unwrap_or(0);
                let end = begin + data.len();
                node.data.resize(node.data.len().max(end), 0);
                node.data[begin..end].copy_from_slice(data);
                node.attr.size = node.data.len() as u64;
                node.attr.mtime = SystemTime::now();
                reply.written(u32::try_from(data.len()).unwrap_or(0));
            }
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        std::thread::sleep(self.sync_time);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        std::thread::sleep(self.sync_time);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let nodes = self.lock();
        let Some(node) = nodes.nodes.get(&ino.0) else {
            return reply.error(Errno::ENOENT);
        };
        let own = [(".", ino.0), ("..", node.parent)];
        let own = own.map(|(name, number)| (OsString::from(name), number));
        let all = own.iter().chain(node.children.values());
        for (at, (name, number)) in (1..).zip(all).skip(usize::try_from(offset).unwrap_or(0)) {
            let kind = nodes.nodes.get(number).map(|node| node.attr.kind);
            let kind = kind.unwrap_or(FileType::RegularFile);
            if reply.add(INodeNo(*number), at, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (blocks, bytes) = (BLOCKS, BLOCK_BYTES);
        reply.statfs(blocks, blocks, blocks, BLOCKS, BLOCKS, bytes, 255, bytes);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let what = (FileType::RegularFile, mode & !umask);
        let made = self.lock().make(request, (parent.0, name), what, b"");
        match made {
            Ok(attr) => reply.created(
                &NO_TIME,
                &attr,
                Generation(0),
                FileHandle(0),
                FopenFlags::empty(),
            ),
            Err(error) => reply.error(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_differ_by_more_than_case() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let _disk = match FoldingDisk::mount(at) {
            Ok(disk) => disk,
            Err(error) => {
                let reason = format_args!("no file system can be mounted by FUSE: {error}");
                return crate::skip::test(reason);
            }
        };
        fs::write(at.join("Readme"), "first").unwrap();
        assert_eq!(fs::read(at.join("README")).unwrap(), b"first");
        let taken = fs::File::create_new(at.join("readme")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        fs::write(at.join("other"), "second").unwrap();
        fs::rename(at.join("other"), at.join("README")).unwrap();
        assert_eq!(fs::read(at.join("Readme")).unwrap(), b"second");
        let names = fs::read_dir(at).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["Readme"]);
        fs::create_dir(at.join("d")).unwrap();
        fs::write(at.join("D/f"), "f").unwrap();
        fs::hard_link(at.join("D/f"), at.join("d/g")).unwrap();
        assert_eq!(fs::read(at.join("D/G")).unwrap(), b"f");
        fs::remove_file(at.join("d/F")).unwrap();
        fs::remove_file(at.join("D/g")).unwrap();
        fs::remove_dir(at.join("D")).unwrap();
        assert!(!at.join("d").exists());
    }
}
