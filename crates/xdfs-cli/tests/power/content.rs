//! Sources, what was at the target before, and what is there afterwards.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use xdfs_testkit::tree::{Random, random_bytes};

/// What is under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Directory,
    File(Vec<u8>),
    Link(PathBuf),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    what: What,
    mode: u32,
    /// Nanoseconds of the last change.
    time: i128,
    /// The same for names of one file.
    inode: u64,
}

/// Everything beneath a directory by its path, or one file with the empty path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree(BTreeMap<PathBuf, Entry>);

/// What is wrong with a target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wrong {
    /// Paths and why: content, kinds, missing and surplus names.
    pub(crate) bytes: Vec<String>,
    /// Paths and why: permissions, times, names of one file.
    pub(crate) attributes: Vec<String>,
}

/// Names of our own for what isn't finished.
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') && (name.contains(".xdfs-") || name.ends_with(".ftp-part"))
}

impl Tree {
    /// Reads what is there; nothing is an empty tree.
    pub(crate) fn read(at: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        match fs::symlink_metadata(at) {
            Ok(_) => tree.add(at, PathBuf::new())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(tree)
    }

    fn add(&mut self, at: &Path, path: PathBuf) -> io::Result<()> {
        let metadata = fs::symlink_metadata(at)?;
        let what = if metadata.is_dir() {
            for entry in fs::read_dir(at)? {
                let entry = entry?;
                self.add(&entry.path(), path.join(entry.file_name()))?;
            }
            What::Directory
        } else if metadata.is_symlink() {
            What::Link(fs::read_link(at)?)
        } else {
            What::File(fs::read(at)?)
        };
        let entry = Entry {
            what,
            mode: metadata.mode() & 0o7777,
            time: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
            inode: metadata.ino(),
        };
        self.0.insert(path, entry);
        Ok(())
    }

    /// After a power cut: each name has its old content or its new one.
    pub(crate) fn between(&self, old: &Self, new: &Self, deletes: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for (path, entry) in &self.0 {
            let known = [old, new].map(|tree| tree.0.get(path).map(|entry| &entry.what));
            if !is_hidden(path) && !known.contains(&Some(&entry.what)) {
                wrong.push(match known.into_iter().flatten().next_back() {
                    Some(what) => format!("{}: {}", path.display(), difference(what, &entry.what)),
                    None => format!("{}: nobody made that", path.display()),
                });
            }
        }
        for path in old.0.keys().filter(|path| !self.0.contains_key(*path)) {
            if !deletes || new.0.contains_key(path) {
                wrong.push(format!("{}: gone", path.display()));
            }
        }
        wrong
    }

    /// After the end: everything is as in the source.
    pub(crate) fn after(&self, old: &Self, new: &Self, command: &crate::work::Command) -> Wrong {
        let mut wrong = Wrong::default();
        let mut inodes = BTreeMap::new();
        for (path, entry) in &new.0 {
            let shown = path.display();
            let Some(found) = self.0.get(path) else {
                wrong.bytes.push(format!("{shown}: missing"));
                continue;
            };
            if found.what != entry.what {
                let difference = difference(&entry.what, &found.what);
                wrong.bytes.push(format!("{shown}: {difference}"));
                continue;
            }
            if matches!(entry.what, What::Link(_)) {
                continue;
            }
            if found.mode != entry.mode && !path.as_os_str().is_empty() {
                let (is, should) = (found.mode, entry.mode);
                wrong
                    .attributes
                    .push(format!("{shown}: mode {is:o} for {should:o}"));
            }
            // Names that only the target has change the times of the directories they are in.
            let counts = matches!(entry.what, What::File(_)) || command.deletes;
            let unit = if command.whole_seconds {
                1_000_000_000
            } else {
                1
            };
            let off = found.time / unit - entry.time / unit;
            if off != 0 && counts && new.0.len() > 1 {
                wrong
                    .attributes
                    .push(format!("{shown}: time off by {off} times {unit} ns"));
            }
            let first = inodes.entry(entry.inode).or_insert(found.inode);
            if command.links && *first != found.inode {
                wrong.attributes.push(format!("{shown}: a file of its own"));
            }
        }
        for path in self.0.keys().filter(|path| !new.0.contains_key(*path)) {
            if !is_hidden(path) && (command.deletes || !old.0.contains_key(path)) {
                wrong.bytes.push(format!("{}: surplus", path.display()));
            }
        }
        wrong
    }

    /// How many names of unfinished things are there.
    pub(crate) fn hidden(&self) -> usize {
        self.0.keys().filter(|path| is_hidden(path)).count()
    }
}

fn difference(should: &What, is: &What) -> String {
    match (should, is) {
        (What::File(should), What::File(is)) => {
            let differs = should.iter().zip(is).filter(|(a, b)| a != b);
            let zero = differs.clone().filter(|(_, b)| **b == 0).count();
            format!(
                "{} of {} bytes, {} differ, {zero} of them zero",
                is.len(),
                should.len(),
                differs.count()
            )
        }
        _ => "another kind".into(),
    }
}

/// Makes the sources, and what was there before them, in a folder.
pub(crate) fn make(at: &Path) {
    file(&at.join("file"), &random_bytes(1, 5_000_000));
    file(&at.join("file-old"), &random_bytes(2, 3_000_000));
    tree(&at.join("tree"), false);
    tree(&at.join("tree-old"), true);
    plain(&at.join("plain"));
    large(&at.join("large"), false);
    large(&at.join("large-old"), true);
}

fn file(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    aged(path, 1);
}

/// Gives it a time some hours ago.
fn aged(path: &Path, hours: u64) {
    let start = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
    let time = start - Duration::from_secs(3600 * hours);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// Many small files, some larger ones, files with holes, links. Of the old form some files are
/// equal, some have another content, some are missing and some are surplus.
fn tree(at: &Path, old: bool) {
    let mut random = Random::new(7);
    for number in 0..140_u64 {
        let (chance, length) = (random.below(10), random.below(4000));
        let path = at.join(format!("d{}/f{number}", number % 9));
        let (changed, missing) = (old && number % 3 == 0, old && number % 7 == 1);
        if missing {
            continue;
        }
        let length = match number {
            0..2 => 700_000 + length,
            2..20 => 20_000 + 8 * length,
            _ if chance == 0 => 0,
            _ => length,
        };
        let seed = if changed { 1000 + number } else { number };
        let length = if changed { length / 2 } else { length };
        file(&path, &random_bytes(seed, usize::try_from(length).unwrap()));
        // A hole at the end, and one in the middle.
        let open = || File::options().write(true).open(&path).unwrap();
        if number % 5 == 2 {
            open()
                .set_len(length + 30_000 + random.below(60_000))
                .unwrap();
        } else if number % 11 == 3 {
            open().write_all_at(b"end", length + 50_000).unwrap();
        }
        aged(&path, if changed { 900 } else { number });
        if number % 4 == 1 {
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        }
        if number % 20 == 5 {
            symlink(format!("f{number}"), at.join(format!("d5/l{number}"))).unwrap();
            // Names in one directory and in another one.
            if !old {
                fs::hard_link(&path, at.join(format!("d5/h{number}"))).unwrap();
                fs::hard_link(&path, at.join(format!("d0/h{number}"))).unwrap();
            }
        }
        if old && number % 10 == 4 {
            file(
                &at.join(format!("surplus{}/s{number}", number % 3)),
                b"to be deleted",
            );
        }
    }
    fs::create_dir_all(at.join("empty/below")).unwrap();
    for entry in fs::read_dir(at).unwrap() {
        aged(&entry.unwrap().path(), 5);
    }
    aged(at, 6);
}

/// Small files and some larger ones, of the kinds that FTP can tell.
fn plain(at: &Path) {
    let mut random = Random::new(8);
    for number in 0..140_u64 {
        let path = at.join(format!("d{}/f{number}", number % 9));
        let length = match number {
            0..2 => 700_000,
            2 => 0,
            _ => random.below(9000),
        };
        file(
            &path,
            &random_bytes(number, usize::try_from(length).unwrap()),
        );
        aged(&path, number);
        if number % 4 == 1 {
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        }
    }
    for entry in fs::read_dir(at).unwrap() {
        aged(&entry.unwrap().path(), 5);
    }
    aged(at, 6);
}

/// Files that are sent by their differences.
fn large(at: &Path, old: bool) {
    for number in 0..4_u64 {
        let mut bytes = random_bytes(
            number + 50,
            1_300_000 + 100_000 * usize::try_from(number).unwrap(),
        );
        if old {
            bytes[400_000..410_000].fill(7);
            bytes.drain(900_000..905_000);
        }
        let path = at.join(format!("large{number}"));
        file(&path, &bytes);
        aged(&path, if old { 900 } else { number });
    }
    if old {
        file(&at.join("surplus"), b"to be deleted");
    }
    file(
        &at.join(if old { "before" } else { "after" }),
        &random_bytes(99, 100_000),
    );
    aged(at, 6);
}
