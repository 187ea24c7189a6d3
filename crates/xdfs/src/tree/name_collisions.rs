//! Names of one directory that a file system may take for one: they differ only in case, in how
//! their letters are composed, or in what some systems leave out of names.
//!
//! Whether the target's does is known only when one of them stands there. So the first of such
//! names goes as any other, and the others wait until everything else is moved. Then it is looked,
//! one name of a kind after the other, whether the name means already what was made under another:
//! what does is told as a failure, and the rest goes as usual. What is taken for alike here is
//! alike for every file system in use, and more; a name too many costs a look, and nothing else.
//!
//! Memory: about sixteen bytes for each name of a directory that is being listed, and the paths of
//! those that wait.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use unicode_normalization::UnicodeNormalization as _;
use xdfs_proto::{Code, Fault};

use super::namespace::LookedUp;
use super::tracker::split;
use crate::paths::{Attributes, join};

/// What names a file in its file system: device and number.
pub(super) type Identity = Option<(u64, u64)>;

/// What all names that may be taken for one have in common.
pub(super) fn folded(name: &[u8]) -> Vec<u8> {
    let mut folded = match str::from_utf8(name) {
        Ok(name) if !name.is_ascii() => {
            let letters = name.nfd().filter(|c| !is_ignorable(*c));
            // Both ways, for letters that have two small forms, or two large ones.
            let letters = letters
                .flat_map(char::to_uppercase)
                .flat_map(char::to_lowercase);
            letters.nfd().collect::<String>().into_bytes()
        }
        _ => name.to_ascii_lowercase(),
    };
    // Some systems leave these out where a name ends.
    while matches!(folded.last(), Some(b'.' | b' ')) {
        folded.pop();
    }
    folded
}

/// Characters that some file systems ignore: joiners, marks of direction, choices of a form.
fn is_ignorable(c: char) -> bool {
    matches!(
        u32::from(c),
        0xad | 0x34f
            | 0x61c
            | 0x115f..=0x1160
            | 0x17b4..=0x17b5
            | 0x180b..=0x180f
            | 0x200b..=0x200f
            | 0x202a..=0x202e
            | 0x2060..=0x206f
            | 0x3164
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xffa0
            | 0xfff0..=0xfff8
            | 0xe0000..=0xe0fff
    )
}

/// What names a file, if its file system tells.
pub(super) fn identity(attributes: &Attributes) -> Identity {
    (attributes.inode != 0).then_some((attributes.device, attributes.inode))
}

/// The names of a directory that were listed so far.
#[derive(Debug, Default)]
pub(super) struct ListedNames {
    random: RandomState,
    names: HashSet<u64>,
    /// Names at the target that were moved there by an earlier run: alike, and exactly.
    moved: HashMap<u64, u64>,
}

impl ListedNames {
    /// Adds a name. `true` if it has to wait, since one before may be taken for it.
    pub(super) fn add(&mut self, name: &[u8]) -> bool {
        let alike = self.alike(name);
        let moved = self.moved.get(&alike);
        let is_moved = moved.is_some_and(|moved| *moved != self.random.hash_one(name));
        !self.names.insert(alike) || is_moved
    }

    /// Equal for names that may be taken for one.
    fn alike(&self, name: &[u8]) -> u64 {
        // Most names are folded as they are.
        let is_plain = |b: &u8| b.is_ascii() && !b.is_ascii_uppercase();
        if name.iter().all(is_plain) && !matches!(name.last(), Some(b'.' | b' ')) {
            return self.random.hash_one(name);
        }
        self.random.hash_one(folded(name).as_slice())
    }

    /// An earlier run moved this name, which won't be moved again.
    pub(super) fn moved(&mut self, name: &[u8]) {
        let alike = self.alike(name);
        self.moved.insert(alike, self.random.hash_one(name));
    }
}

/// What waits, since something else may be taken for it.
pub(super) struct Deferred<E> {
    entries: Vec<E>,
    /// The path of one.
    pub(super) path: fn(&E) -> &[u8],
    /// Directories and folded names of all that ever waited here.
    kinds: HashSet<Vec<u8>>,
}

/// A path with its last name folded.
pub(super) fn kind(path: &[u8]) -> Vec<u8> {
    let (directory, name) = split(path);
    join(directory, &folded(name))
}

impl<E> Deferred<E> {
    pub(super) fn new(path: fn(&E) -> &[u8]) -> Self {
        Self {
            entries: Vec::new(),
            path,
            kinds: HashSet::new(),
        }
    }

    pub(super) fn add(&mut self, entry: E) {
        self.kinds.insert(kind((self.path)(&entry)));
        self.entries.push(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether something that waited here may be taken for this.
    pub(super) fn has_kind(&self, path: &[u8]) -> bool {
        !self.kinds.is_empty() && self.kinds.contains(&kind(path))
    }

    /// The first of each kind that waits: what may be taken for one of them is at its place, or
    /// never will be.
    pub(super) fn take_round(&mut self) -> Vec<E> {
        let mut taken = HashSet::new();
        let (round, rest) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| taken.insert(kind((self.path)(entry))));
        self.entries = rest;
        round
    }
}

/// Is told the names of a directory.
pub(super) type Names<'n> = dyn FnMut(&[u8], Identity) + 'n;

/// Both ends of a tree, as they can be looked at.
pub(super) trait BothEnds {
    /// The names in a directory of the source that belong to the tree.
    fn source(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault>;

    /// The names in a directory of the target.
    fn target(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault>;

    /// What stands under paths at the target, if anything, in their order.
    fn look(&self, paths: &[Vec<u8>]) -> Vec<LookedUp>;
}

/// What is found of a name that waited: `Err` says why it isn't to be moved.
pub(super) type Verdict = Result<(), Fault>;

/// Looks whether names at the target mean already what was made there under others.
///
/// # Errors
/// The session ended.
pub(super) fn resolve_collisions(
    ends: &dyn BothEnds,
    paths: &[&[u8]],
) -> Result<Vec<Verdict>, Fault> {
    let owned: Vec<Vec<u8>> = paths.iter().map(|path| path.to_vec()).collect();
    let mut verdicts = Vec::new();
    let mut found: BTreeMap<&[u8], Vec<(usize, Identity)>> = BTreeMap::new();
    for (at, looked) in ends.look(&owned).into_iter().enumerate() {
        verdicts.push(match looked {
            Ok(Some(there)) => {
                let directory = split(paths[at]).0;
                let there = identity(&there);
                found.entry(directory).or_default().push((at, there));
                Ok(())
            }
            // What stands above it is told when it is moved.
            Ok(None) => Ok(()),
            Err(fault) if fault.ends_session => return Err(fault),
            Err(fault) => Err(fault.path(paths[at])),
        });
    }
    for (directory, names) in found {
        let wanted = names.iter().map(|(at, _)| folded(split(paths[*at]).1));
        let listed = Directory::list(ends, directory, wanted.collect());
        for (at, there) in names {
            let listed = listed.as_ref().map_err(Fault::clone);
            let clash = listed.and_then(|listed| listed.clash(ends, paths[at], there));
            verdicts[at] = match clash {
                Ok(None) => Ok(()),
                Ok(Some(other)) => Err(same(paths[at], &other)),
                Err(fault) if fault.ends_session => return Err(fault),
                Err(fault) => Err(fault.path(paths[at])),
            };
        }
    }
    Ok(verdicts)
}

/// The fault of a name that means something else at the target.
pub(super) fn same(path: &[u8], other: &[u8]) -> Fault {
    let name = |name: &[u8]| name.escape_ascii().to_string();
    let (own, other) = (name(split(path).1), name(other));
    let cause =
        format!("the target's file system doesn't tell '{own}' from '{other}', which is there");
    Fault::new(Code::AlreadyExists, "copy a tree", cause)
        .path(path)
        .hint("rename one of them, or choose a target that tells them apart")
}

/// Of a directory, the names that may be taken for those that are looked at.
struct Directory<'d> {
    path: &'d [u8],
    source: HashMap<Vec<u8>, Vec<(Vec<u8>, Identity)>>,
    target: HashSet<Vec<u8>>,
}

impl<'d> Directory<'d> {
    fn list(ends: &dyn BothEnds, path: &'d [u8], wanted: HashSet<Vec<u8>>) -> Result<Self, Fault> {
        let mut source: HashMap<Vec<u8>, Vec<_>> = HashMap::new();
        ends.source(path, &mut |name, identity| {
            let folded = folded(name);
            if wanted.contains(&folded) {
                let alike = source.entry(folded).or_default();
                alike.push((name.to_vec(), identity));
            }
        })?;
        let mut target = HashSet::new();
        ends.target(path, &mut |name, _| {
            if wanted.contains(&folded(name)) {
                target.insert(name.to_vec());
            }
        })?;
        Ok(Self {
            path,
            source,
            target,
        })
    }

    /// The other name by which the target has what it finds under this one, if there is any.
    fn clash(
        &self,
        ends: &dyn BothEnds,
        path: &[u8],
        there: Identity,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let name = split(path).1;
        let alike = self.source.get(&folded(name));
        let alike = alike.map(Vec::as_slice).unwrap_or_default();
        let own = alike.iter().find(|(other, _)| other == name);
        let own = own.and_then(|(_, identity)| *identity);
        let others = alike.iter().filter(|(other, identity)| {
            // Two names of one file may well mean the same.
            let is_same_file = own.is_some() && *identity == own;
            // Nor are two names one that are listed both.
            let is_listed = self.target.contains(name) && self.target.contains(other);
            other != name && !is_same_file && !is_listed
        });
        let others: Vec<_> = others.map(|(other, _)| other).collect();
        let paths: Vec<_> = others.iter().map(|other| join(self.path, other)).collect();
        for (other, looked) in others.into_iter().zip(ends.look(&paths)) {
            let found = looked?;
            let is_one = |found: Attributes| match (identity(&found), there) {
                (Some(found), Some(there)) => found == there,
                _ => true,
            };
            if found.is_some_and(is_one) {
                return Ok(Some(other.clone()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::namespace::FoundName;
    use super::*;
    use crate::paths::FileKind;

    #[test]
    fn names_that_some_file_system_takes_for_one_fold_to_the_same() {
        for (one, other) in [
            ("Readme", "README"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{e9}t\u{e9}", "E\u{301}TE\u{301}"),
            ("\u{3c3}\u{3c2}", "\u{3a3}\u{3a3}"),
            ("\u{212a}elvin", "kelvin"),
            ("i", "I"),
            ("name", "name. ."),
            ("a\u{200d}b", "ab"),
        ] {
            assert_eq!(folded(one.as_bytes()), folded(other.as_bytes()), "{one}");
        }
        for (one, other) in [("a", "b"), ("a.b", "ab"), ("\u{e9}", "e"), (" a", "a")] {
            assert_ne!(folded(one.as_bytes()), folded(other.as_bytes()), "{one}");
        }
        // What is no text is compared byte by byte, but for the letters of ASCII.
        assert_eq!(folded(b"A\xff"), folded(b"a\xff"));
        assert_ne!(folded(b"a\xfe"), folded(b"a\xff"));
        assert!(folded(b"...").is_empty());
    }

    #[test]
    fn the_first_name_of_a_kind_goes_and_others_wait() {
        let mut listed = ListedNames::default();
        let waits = ["a", "b", "A", "c", "B", "a "].map(|name| listed.add(name.as_bytes()));
        assert_eq!(waits, [false, false, true, false, true, true]);
        // What an earlier run moved comes first, wherever it is listed.
        let mut listed = ListedNames::default();
        listed.moved(b"Readme");
        assert!(listed.add(b"README"));
        assert!(listed.add(b"Readme"));
        let mut listed = ListedNames::default();
        listed.moved(b"Readme");
        assert!(!listed.add(b"Readme"));
    }

    #[test]
    fn one_of_each_kind_goes_at_a_time() {
        let mut waiting = Deferred::new(|found: &FoundName| &found.path);
        for path in ["d/A", "d/B", "d/a ", "e/A"] {
            waiting.add(FoundName::listed(path.into(), attributes(1)));
        }
        let mut round = || {
            let round = waiting.take_round().into_iter();
            round
                .map(|found| String::from_utf8(found.path).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(round(), ["d/A", "d/B", "e/A"]);
        assert_eq!(round(), ["d/a "]);
        assert!(round().is_empty() && waiting.is_empty());
        assert!(waiting.has_kind(b"d/a") && !waiting.has_kind(b"f/a"));
    }

    fn attributes(inode: u64) -> Attributes {
        Attributes {
            kind: FileKind::File,
            size: 0,
            allocated: 0,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            device: 2,
            inode,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        }
    }

    /// A directory at both ends. The target keeps what was made first under a folded name, or
    /// tells all names apart.
    struct Fake {
        source: Vec<(&'static str, u64)>,
        target: RefCell<Vec<(String, u64)>>,
        folds: bool,
        numbers: bool,
    }

    impl Fake {
        fn new(source: &[(&'static str, u64)], target: &[(&str, u64)], folds: bool) -> Self {
            let target = target.iter().map(|(name, n)| ((*name).to_owned(), *n));
            Self {
                source: source.to_vec(),
                target: RefCell::new(target.collect()),
                folds,
                numbers: true,
            }
        }

        fn clash(&self, name: &str) -> Option<String> {
            let verdicts = resolve_collisions(self, &[name.as_bytes()]).unwrap();
            let fault = verdicts.into_iter().next().unwrap().err()?;
            assert_eq!(fault.code, Code::AlreadyExists);
            Some(fault.cause)
        }
    }

    impl BothEnds for Fake {
        fn source(&self, _: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
            for (name, number) in &self.source {
                names(name.as_bytes(), Some((1, *number)));
            }
            Ok(())
        }

        fn target(&self, _: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
            for (name, number) in &*self.target.borrow() {
                names(name.as_bytes(), Some((2, *number)));
            }
            Ok(())
        }

        fn look(&self, paths: &[Vec<u8>]) -> Vec<LookedUp> {
            let target = self.target.borrow();
            let look = |path: &Vec<u8>| {
                let found = target.iter().find(|(name, _)| match self.folds {
                    true => folded(name.as_bytes()) == folded(path),
                    false => name.as_bytes() == path,
                });
                Ok(found.map(|(_, number)| attributes(if self.numbers { *number } else { 0 })))
            };
            paths.iter().map(look).collect()
        }
    }

    #[test]
    fn a_name_that_means_another_is_found() {
        let source = [("Readme", 1), ("README", 2), ("other", 3)];
        for numbers in [true, false] {
            let with = |target: &[(&str, u64)], folds| Fake {
                numbers,
                ..Fake::new(&source, target, folds)
            };
            // Nothing stands there, or what is told apart.
            assert_eq!(with(&[], true).clash("README"), None);
            assert_eq!(with(&[("Readme", 5)], false).clash("README"), None);
            let both = [("Readme", 5), ("README", 6)];
            assert_eq!(with(&both, false).clash("README"), None);
            // Hard links of one file at the target are two names.
            let linked = [("Readme", 5), ("README", 5)];
            assert_eq!(with(&linked, false).clash("README"), None);
            let clash = with(&[("Readme", 5)], true).clash("README").unwrap();
            assert!(clash.contains("'README' from 'Readme'"), "{clash}");
            // What was there before keeps its spelling when it is replaced.
            assert!(with(&[("README", 5)], true).clash("README").is_some());
            assert!(with(&[("readme", 5)], true).clash("README").is_some());
        }
        // Two names of one file mean the same anyway.
        let linked = [("Readme", 1), ("README", 1)];
        assert_eq!(
            Fake::new(&linked, &[("Readme", 5)], true).clash("README"),
            None
        );
        // It has no other name in the source.
        let single = [("README", 1)];
        assert_eq!(
            Fake::new(&single, &[("Readme", 5)], true).clash("README"),
            None
        );
    }
}
