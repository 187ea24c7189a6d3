//! Name collisions: names of one directory that a file system may treat as equal, because they
//! differ only in case, Unicode composition, or characters that some systems ignore.
//!
//! Whether the target treats them as equal shows only once one of them exists there. So the first
//! of such names moves like any other, and the others wait until everything else has been moved.
//! Then each is looked up, one name of a kind at a time: if the target finds an entry created under
//! another name, that is a failure; otherwise the entry moves as usual. The comparison here is
//! coarser than that of any file system in use; a false match costs one lookup.
//!
//! Memory: about sixteen bytes for each name of the directories being listed, and the paths of
//! deferred entries.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use unicode_normalization::UnicodeNormalization as _;
use xdfs_proto::{Code, Fault};

use super::hashed::AsIs;
use super::namespace::LookedUp;
use super::tracker::split;
use crate::paths::{Attributes, join};

/// Device and inode of a file.
pub(super) type Identity = Option<(u64, u64)>;

/// Folds a name, so that names that may collide become equal.
pub(super) fn folded(name: &[u8]) -> Vec<u8> {
    let mut folded = match str::from_utf8(name) {
        Ok(name) if !name.is_ascii() => {
            let letters = name.nfd().filter(|c| !is_ignorable(*c));
            // Both ways, for letters with two lower-case or two upper-case forms.
            let letters = letters
                .flat_map(char::to_uppercase)
                .flat_map(char::to_lowercase);
            letters.nfd().collect::<String>().into_bytes()
        }
        _ => name.to_ascii_lowercase(),
    };
    // Some systems drop these at the end of a name.
    while matches!(folded.last(), Some(b'.' | b' ')) {
        folded.pop();
    }
    folded
}

/// Characters that some file systems ignore: joiners, direction marks, variation selectors.
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

/// The identity of a file, if its file system provides one.
pub(super) fn identity(attributes: &Attributes) -> Identity {
    (attributes.inode != 0).then_some((attributes.device, attributes.inode))
}

/// The names of a directory listed so far.
#[derive(Debug, Default)]
pub(super) struct ListedNames {
    random: RandomState,
    names: HashSet<u64, AsIs>,
    /// Hashes of names that the target has: of the folded and the exact name.
    at_target: HashMap<u64, u64, AsIs>,
}

impl ListedNames {
    /// Adds a name. Returns `true` if it has to wait, since it may collide with an earlier one.
    pub(super) fn add(&mut self, name: &[u8]) -> bool {
        let (alike, exact) = self.hashes(name);
        let is_first = self.names.insert(alike);
        match self.at_target.get(&alike) {
            Some(there) => *there != exact,
            None => !is_first,
        }
    }

    /// Hashes of the folded and the exact name.
    fn hashes(&self, name: &[u8]) -> (u64, u64) {
        let exact = self.random.hash_one(name);
        // Most names fold to themselves.
        let is_plain = |b: &u8| b.is_ascii() && !b.is_ascii_uppercase();
        if name.iter().all(is_plain) && !matches!(name.last(), Some(b'.' | b' ')) {
            return (exact, exact);
        }
        (self.random.hash_one(folded(name).as_slice()), exact)
    }

    /// Adds a name that the target has. It comes before others of its kind, in whichever order
    /// the source is listed: otherwise one of those would replace its entry.
    pub(super) fn at_target(&mut self, name: &[u8]) {
        let (alike, exact) = self.hashes(name);
        self.at_target.insert(alike, exact);
    }
}

/// Entries that wait, since their names may collide with others.
pub(super) struct Deferred<E> {
    entries: Vec<E>,
    /// The path of an entry.
    path: fn(&E) -> &[u8],
    /// Kinds of all entries ever added.
    kinds: HashSet<Vec<u8>>,
}

/// The kind of a path: its last name is folded. Entries of one kind may collide.
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

    /// Whether an entry that was ever added may collide with this path.
    pub(super) fn has_kind(&self, path: &[u8]) -> bool {
        !self.kinds.is_empty() && self.kinds.contains(&kind(path))
    }

    /// Takes the first entry of each kind. Those that it may collide with have been moved, or have
    /// failed.
    pub(super) fn take_round(&mut self) -> Vec<E> {
        let mut taken = HashSet::new();
        let (round, rest) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| taken.insert(kind((self.path)(entry))));
        self.entries = rest;
        round
    }
}

/// Receives the names of a directory.
pub(super) type Names<'n> = dyn FnMut(&[u8], Identity) + 'n;

/// Lookups on both sides of a tree copy.
pub(super) trait BothEnds {
    /// The names in a directory of the source, without those that are left out.
    fn source(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault>;

    /// The names in a directory of the target.
    fn target(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault>;

    /// Looks up paths at the target; the results are in their order.
    fn look(&self, paths: &[Vec<u8>]) -> Vec<LookedUp>;
}

/// Whether a deferred entry may be moved.
pub(super) type Verdict = Result<(), Fault>;

/// Checks whether the target resolves paths to entries created under other names. Paths that were
/// refused before have created nothing.
///
/// # Errors
/// The session ended.
pub(super) fn resolve_collisions(
    ends: &dyn BothEnds,
    refused: &HashSet<Vec<u8>>,
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
            // If a parent is missing, moving the entry reports that.
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
            let clash = listed.and_then(|listed| listed.clash((ends, refused), paths[at], there));
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

/// The fault of a name that collides with another at the target.
pub(super) fn same(path: &[u8], other: &[u8]) -> Fault {
    let name = |name: &[u8]| name.escape_ascii().to_string();
    let (own, other) = (name(split(path).1), name(other));
    let cause = format!(
        "the target's file system doesn't distinguish '{own}' from '{other}', which exists"
    );
    Fault::new(Code::AlreadyExists, "copy", cause)
        .path(path)
        .hint("rename one of them, or choose a target that distinguishes them")
}

/// The names in a directory that may collide with the names being checked.
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

    /// The other name of the entry that the target finds under this name, if there is one.
    fn clash(
        &self,
        (ends, refused): (&dyn BothEnds, &HashSet<Vec<u8>>),
        path: &[u8],
        there: Identity,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let name = split(path).1;
        let alike = self.source.get(&folded(name));
        let alike = alike.map(Vec::as_slice).unwrap_or_default();
        let own = alike.iter().find(|(other, _)| other == name);
        let own = own.and_then(|(_, identity)| *identity);
        let others = alike.iter().filter(|(other, identity)| {
            // Hard links of one file don't collide.
            let is_same_file = own.is_some() && *identity == own;
            // Nor do two names that the target lists.
            let is_listed = self.target.contains(name) && self.target.contains(other);
            other != name && !is_same_file && !is_listed
        });
        let others = others.map(|(other, _)| (other, join(self.path, other)));
        let others = others.filter(|(_, path)| !refused.contains(path));
        let (others, paths): (Vec<_>, Vec<_>) = others.unzip();
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
        // Other than UTF-8 is compared by bytes, ignoring ASCII case.
        assert_eq!(folded(b"A\xff"), folded(b"a\xff"));
        assert_ne!(folded(b"a\xfe"), folded(b"a\xff"));
        assert!(folded(b"...").is_empty());
    }

    #[test]
    fn the_first_name_of_a_kind_goes_and_others_wait() {
        let mut listed = ListedNames::default();
        let waits = ["a", "b", "A", "c", "B", "a "].map(|name| listed.add(name.as_bytes()));
        assert_eq!(waits, [false, false, true, false, true, true]);
        // What the target has comes first, in any order of the listing.
        for names in [["README", "Readme"], ["Readme", "README"]] {
            let mut listed = ListedNames::default();
            listed.at_target(b"Readme");
            for name in names {
                assert_eq!(listed.add(name.as_bytes()), name == "README", "{names:?}");
            }
        }
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

    /// A directory on both sides. The target keeps the first entry under a folded name, or
    /// distinguishes all names.
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
            self.clash_after(&[], name)
        }

        fn clash_after(&self, refused: &[&str], name: &str) -> Option<String> {
            let refused = refused
                .iter()
                .map(|name| name.as_bytes().to_vec())
                .collect();
            let verdicts = resolve_collisions(self, &refused, &[name.as_bytes()]).unwrap();
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
            // There is no entry, or the names are distinct.
            assert_eq!(with(&[], true).clash("README"), None);
            assert_eq!(with(&[("Readme", 5)], false).clash("README"), None);
            let both = [("Readme", 5), ("README", 6)];
            assert_eq!(with(&both, false).clash("README"), None);
            // Hard links of one file at the target are two names.
            let linked = [("Readme", 5), ("README", 5)];
            assert_eq!(with(&linked, false).clash("README"), None);
            let clash = with(&[("Readme", 5)], true).clash("README").unwrap();
            assert!(clash.contains("'README' from 'Readme'"), "{clash}");
            // An existing entry keeps its spelling when it is replaced.
            assert!(with(&[("README", 5)], true).clash("README").is_some());
            assert!(with(&[("readme", 5)], true).clash("README").is_some());
            // A name that was refused created nothing.
            let refused = with(&[("Readme", 5)], true).clash_after(&["README"], "Readme");
            assert_eq!(refused, None);
        }
        // Two names of one file don't collide.
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
