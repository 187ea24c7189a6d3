//! What a tree is, in a form that can be compared.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use xdfs_testkit::tree::{Random, random_bytes};

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) what: What,
    mode: u32,
    /// Of files and directories; nobody can set that of links everywhere.
    mtime: Option<(i64, i64)>,
}

/// What an entry is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum What {
    File(Vec<u8>),
    Directory,
    Symlink(Vec<u8>),
    Fifo,
    Other,
}

impl std::fmt::Debug for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(bytes) => write!(f, "File({} bytes)", bytes.len()),
            Self::Directory => f.write_str("Directory"),
            Self::Symlink(target) => write!(f, "Symlink({})", target.escape_ascii()),
            Self::Fifo => f.write_str("Fifo"),
            Self::Other => f.write_str("Other"),
        }
    }
}

/// All entries beneath `root`, with itself, by their paths.
pub(crate) fn picture(root: &Path) -> BTreeMap<Vec<u8>, Seen> {
    let mut found = BTreeMap::new();
    look(root, root, &mut found);
    found
}

fn look(root: &Path, path: &Path, found: &mut BTreeMap<Vec<u8>, Seen>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let what = if kind.is_dir() {
        What::Directory
    } else if kind.is_file() {
        What::File(fs::read(path).unwrap())
    } else if kind.is_symlink() {
        What::Symlink(fs::read_link(path).unwrap().into_os_string().into_vec())
    } else if kind.is_fifo() {
        What::Fifo
    } else {
        What::Other
    };
    let timed = kind.is_dir() || kind.is_file();
    let is_link = kind.is_symlink();
    let seen = Seen {
        mode: if is_link { 0 } else { meta.mode() & 0o7777 },
        mtime: timed.then(|| (meta.mtime(), meta.mtime_nsec())),
        what,
    };
    let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
    found.insert(name.to_vec(), seen);
    if kind.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            look(root, &entry.unwrap().path(), found);
        }
    }
}

/// Fails if two trees differ, and says where.
#[track_caller]
pub(crate) fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (picture(a), picture(b));
    for (name, seen) in &a {
        assert_eq!(Some(seen), b.get(name), "{}", name.escape_ascii());
    }
    for name in b.keys() {
        assert!(a.contains_key(name), "{} is too much", name.escape_ascii());
    }
}

fn set(path: &Path, mode: u32, seconds: u64) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let time = UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// A tree with everything that is hard about trees.
pub(crate) fn hard_tree(root: &Path) {
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("a/b/c/d/e")).unwrap();
    fs::write(root.join("zero"), "").unwrap();
    fs::write(root.join("two"), "ab").unwrap();
    fs::write(root.join("a/b/c/d/e/deep"), "deep").unwrap();
    let bytes = |name: &[u8]| root.join(std::ffi::OsStr::from_bytes(name));
    fs::write(bytes(b"new\nline"), "1").unwrap();
    fs::write(bytes(b"\xff\xfe no text"), "2").unwrap();
    fs::write(bytes(&[b'x'; 255]), "3").unwrap();
    fs::write(bytes("na\u{ef}ve \u{1f4a9}".as_bytes()), "4").unwrap();
    fs::write(bytes(b" -rf *"), "5").unwrap();
    // Just in a pack, just not, and much more than one.
    for len in [(512 << 10) - 1, 512 << 10, (512 << 10) + 1, 5 << 20] {
        fs::write(
            root.join(format!("of-{len}")),
            random_bytes(len as u64, len),
        )
        .unwrap();
    }
    symlink("two", root.join("link")).unwrap();
    symlink("/nowhere/at all", root.join("dangling")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("..", root.join("a/up")).unwrap();
    xdfs_testkit::tree::make_pipe(root.join("pipe")).unwrap();
    set(&root.join("two"), 0o640, 1_000_000_000);
    set(&root.join("zero"), 0o400, 1_500_000_000);
    set(&root.join("a/b/c"), 0o700, 1_400_000_000);
    fs::create_dir(root.join("closed")).unwrap();
    fs::write(root.join("closed/in it"), "6").unwrap();
    set(&root.join("closed"), 0o555, 1_300_000_000);
    set(&root.join("empty"), 0o750, 1_200_000_000);
    set(root, 0o755, 1_100_000_000);
}

/// A tree of `count` files of up to `longest` bytes in directories of directories.
pub(crate) fn wide_tree(root: &Path, seed: u64, count: u64, longest: u64) {
    let mut random = Random::new(seed);
    for i in 0..count {
        let directory = root.join(format!("{}/{}", random.below(7), random.below(9)));
        fs::create_dir_all(&directory).unwrap();
        let len = usize::try_from(random.below(longest + 1)).unwrap();
        fs::write(directory.join(format!("{i}")), random_bytes(seed ^ i, len)).unwrap();
    }
}
