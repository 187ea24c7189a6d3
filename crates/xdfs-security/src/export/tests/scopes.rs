//! A user restricted to a scope reaches nothing else, by any sequence of calls and with any links:
//! nothing outside is changed, and no answer discloses anything of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use xdfs_proto::Limits;
use xdfs_proto::delta::{Seed, SeedPiece};
use xdfs_proto::digest::FragmentState;
use xdfs_proto::file::FileFlags;
use xdfs_proto::pack::{Content, Entry, Metadata, PackReader, PackRequest, PackWriter, Preserve};
use xdfs_proto::path::{Answer, Attributes, Call};
use xdfs_store::FileRequest;

use super::*;

/// The content of every file outside, and of no other.
const SECRET: &[u8] = b"SECRET";
const BLOCK: u32 = 1024;
const OVERWRITE: PackOptions = PackOptions {
    overwrite: true,
    relaxed: false,
};

const SETTINGS: &str = r#"
    [[export]]
    name = "data"
    path = "ROOT"
    grant = [{ user = "all", rights = "all" }, { user = "token", rights = "all" }]
    [[export]]
    name = "part"
    path = "ROOT/in/b"
    public = true
    anonymous = "all"
    grant = [{ user = "*", rights = "all" }]
"#;

/// Path components: existing ones, ones that lead elsewhere, and new ones.
const COMPONENTS: [&str; 22] = [
    "a",
    "b",
    "c",
    "d",
    "e",
    "up",
    "near",
    "far",
    "out",
    "abs",
    "chain",
    "dangling",
    "side",
    "new",
    "other",
    "in",
    "in2",
    "hidden-1",
    "hidden-dir",
    "hidden-2",
    "way",
    ".",
];
/// Targets of new links, which only some users may create.
const TARGETS: [&str; 6] = ["..", "../..", "../../out", "c", "/", "../../../etc"];

/// A tree with links of all kinds: `in` with its content, and its surroundings.
fn make_tree(root: &Path) {
    for dir in ["in/b/d", "in2", "out/hidden-dir"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for (number, name) in ["a", "b/c", "b/d/e"].into_iter().enumerate() {
        fs::write(root.join("in").join(name), format!("inside {number}")).unwrap();
    }
    for name in [
        "hidden-1",
        "out/hidden-1",
        "out/hidden-dir/hidden-2",
        "in2/hidden-1",
    ] {
        let content = format!("SECRET of {name}").repeat(300);
        fs::write(root.join(name), content).unwrap();
    }
    for (link, target) in [
        ("in/up", ".."),
        ("in/b/up", ".."),
        ("in/b/d/up", "../.."),
        ("in/b/d/near", "../../a"),
        ("in/b/d/far", "../../../out"),
        ("in/b/far", "../../out"),
        ("in/b/d/out", "../../out"),
        ("in/b/out", "../out"),
        ("in/out", "out"),
        ("in/chain", "b/up"),
        ("in/b/chain", "d/far"),
        ("in/b/side", "../../in2"),
        ("in/dangling", "nowhere"),
        ("in/b/abs", root.to_str().unwrap()),
        ("way", "in"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
}

/// Principals, and the directories that they may see and change.
fn principals() -> [(Principal, Option<&'static str>, &'static str); 7] {
    let look = Rights::READ | Rights::LIST;
    [
        (
            scoped("token", &[("data/in", Rights::ALL)]),
            Some("in"),
            "in",
        ),
        (
            scoped("token", &[("data/in/b", Rights::ALL), ("data/in", look)]),
            Some("in"),
            "in/b",
        ),
        (
            scoped("token", &[("data/in/b/d", Rights::ALL)]),
            Some("in/b/d"),
            "in/b/d",
        ),
        (
            // A file, and a directory that doesn't exist.
            scoped(
                "token",
                &[("data/in/a", Rights::ALL), ("data/in/new", Rights::ALL)],
            ),
            Some("in"),
            "in",
        ),
        // A scope through a link is worthless.
        (
            scoped("token", &[("data/way/b", Rights::ALL)]),
            None,
            "nothing",
        ),
        (anonymous(), Some("in/b"), "in/b"),
        // Without scopes: the export is a part of another one, in which there is no grant.
        (user("part"), Some("in/b"), "in/b"),
    ]
}

/// Everything visible outside of a directory.
type Picture = BTreeMap<PathBuf, (u32, u64, i64, u32, Vec<u8>)>;

fn picture(root: &Path, but: &str) -> Picture {
    let mut all = Picture::new();
    let but = root.join(but);
    let mut rest = vec![root.to_owned()];
    while let Some(path) = rest.pop() {
        if path == but {
            continue;
        }
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_dir() {
            rest.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            Vec::new()
        } else if meta.is_symlink() {
            fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else {
            fs::read(&path).unwrap()
        };
        // Removing the scope changes the time of its parent.
        let mtime = if but.parent() == Some(&path) {
            0
        } else {
            meta.mtime_nsec()
        };
        let links = if meta.is_dir() { 0 } else { meta.nlink() };
        all.insert(path, (meta.mode(), links, mtime, meta.uid(), content));
    }
    all
}

/// What must not be disclosed: inode numbers of things outside, and digests of their content.
struct Forbidden {
    inodes: Vec<u64>,
    answers: Vec<Answer>,
}

impl Forbidden {
    fn of(root: &Path, seen: Option<&str>, all: &dyn Store) -> Self {
        let mut forbidden = Self {
            inodes: Vec::new(),
            answers: Vec::new(),
        };
        for path in picture(root, seen.unwrap_or("nothing")).keys() {
            let meta = fs::symlink_metadata(path).unwrap();
            forbidden.inodes.push(meta.ino());
            if !meta.is_file() {
                continue;
            }
            let inner = path.strip_prefix(root).unwrap().to_str().unwrap();
            let path = format!("data/{inner}");
            for call in [checksum(&path), signatures(&path)] {
                forbidden
                    .answers
                    .push(all.call(&call, &mut |_| Ok(())).unwrap());
            }
        }
        forbidden
    }

    fn check_bytes(&self, bytes: &[u8]) {
        let tells = bytes.windows(SECRET.len()).any(|at| at == SECRET);
        assert!(!tells, "it tells: {}", bytes.escape_ascii());
    }

    fn check_attributes(&self, found: &Attributes) {
        assert!(!self.inodes.contains(&found.inode), "it tells of {found:?}");
    }

    fn check(&self, answer: &Answer) {
        assert!(!self.answers.contains(answer), "it tells {answer:?}");
        match answer {
            Answer::Attributes(found) => self.check_attributes(found),
            Answer::Entries { entries, .. } => {
                for entry in entries {
                    self.check_attributes(&entry.attributes);
                }
            }
            _ => {}
        }
    }
}

fn checksum(path: &str) -> Call {
    Call::Checksum {
        path: path.into(),
        offset: 0,
        length: None,
        kind: ChecksumKind::Blake3,
    }
}

fn signatures(path: &str) -> Call {
    Call::Signatures {
        path: path.into(),
        digest: DigestKind::Crc64Nvme,
        block_bytes: BLOCK,
        first: 0,
        count: 1,
    }
}

/// One attempt: an operation, two paths, and a variant.
type Step = (u8, Vec<u8>, Vec<u8>, u8);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let path = || vec(any::<u8>(), 1..5);
    vec((0_u8..34, path(), path(), any::<u8>()), 1..40)
}

/// A path from numbers; usually within the scope.
fn path_of(numbers: &[u8], base: &str) -> String {
    let mut path = String::from(match numbers[0] % 16 {
        0 => "data",
        1 => "data/way",
        2 => "data/in",
        3 => "data/in/b",
        4 => "data/in/b/d",
        5 => "part",
        _ => base,
    });
    for number in numbers {
        path.push('/');
        path.push_str(COMPONENTS[usize::from(*number) % COMPONENTS.len()]);
    }
    path
}

fn pack_of(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    for entry in entries {
        assert!(writer.entry(entry));
    }
    let (buffer, len) = writer.finish();
    buffer[..len].to_vec()
}

/// Performs one attempt, and checks the result.
fn take_step(store: &dyn Store, base: &str, step: &Step, forbidden: &Forbidden) {
    let (what, first, second, how) = step;
    let (from, to) = (path_of(first, base), path_of(second, base));
    let path = from.clone().into_bytes();
    let flag = how.is_multiple_of(2);
    let call = match what {
        0 | 1 => Call::Stat { path, follow: flag },
        2 | 3 => Call::List {
            path,
            cursor: Vec::new(),
            entries_max: 100,
        },
        4 => Call::MakeDirectory {
            path,
            mode: None,
            parents: flag,
        },
        5 => Call::RemoveFile { path },
        6 => Call::RemoveDirectory { path },
        7 if how.is_multiple_of(4) => Call::RemoveTree { path },
        8..=13 => Call::Rename {
            from: path,
            to: to.into(),
            overwrite: flag,
        },
        14 => Call::Copy {
            from: path,
            to: to.into(),
            overwrite: flag,
        },
        15 | 16 => Call::Link {
            existing: path,
            path: to.into(),
        },
        17 => Call::Symlink {
            target: TARGETS[usize::from(*how) % TARGETS.len()].into(),
            path,
        },
        18 => Call::ReadLink { path },
        19 => Call::SetMode { path, mode: 0o700 },
        20 => Call::SetTimes {
            path,
            atime_ns: None,
            mtime_ns: Some(5),
            follow: flag,
        },
        21 => Call::Truncate { path, length: 3 },
        22 => checksum(&from),
        23 => signatures(&from),
        24 => Call::Sync { path },
        25 => seed(&from, &to),
        26 | 27 => return download(store, &path, forbidden),
        28 => {
            return drop(put(
                store,
                &if flag { forced(&from) } else { request(&from) },
                7,
            ));
        }
        29 | 30 => return work_in_place(store, path, *how, forbidden),
        31 | 32 => return send_pack(store, &path, &to, *how),
        _ => return take_pack(store, &path, second, forbidden),
    };
    let mut parts = Vec::new();
    let answer = store.call(&call, &mut |part| {
        parts.push(part);
        Ok(())
    });
    parts.extend(answer);
    for part in &parts {
        forbidden.check(part);
    }
}

fn seed(from: &str, to: &str) -> Call {
    Call::Seed(Box::new(Seed {
        from: from.into(),
        to: to.into(),
        overwrite: true,
        sparse: false,
        tag: SourceTag([7; 16]),
        length: u64::from(BLOCK),
        digest: DigestKind::Crc64Nvme,
        block_bytes: BLOCK,
        pieces: vec![SeedPiece {
            offset: 0,
            from_offset: 0,
            length: BLOCK,
            state: FragmentState::Crc64Nvme(1),
        }],
    }))
}

fn download(store: &dyn Store, path: &[u8], forbidden: &Forbidden) {
    if let Ok(mut source) = store.open_source(path) {
        let mut bytes = vec![0; 1000];
        if let Ok(count) = source.read_at(0, &mut bytes) {
            forbidden.check_bytes(&bytes[..count]);
        }
    }
}

fn work_in_place(store: &dyn Store, path: Vec<u8>, how: u8, forbidden: &Forbidden) {
    let write = !how.is_multiple_of(4);
    let request = FileRequest {
        path,
        flags: FileFlags {
            read: !how.is_multiple_of(3) || !write,
            write,
            create: write && how % 8 < 4,
            truncate: write && how % 16 == 1,
            ..FileFlags::default()
        },
        mode: None,
        identity: None,
    };
    if let Ok(opened) = store.open_file(&request) {
        forbidden.check_attributes(&opened.attributes);
        let mut bytes = vec![0; 1000];
        if let Ok(count) = opened.file.read_at(0, &mut bytes) {
            forbidden.check_bytes(&bytes[..count]);
        }
        // It may be open for reading only.
        let _ = opened.file.write_at(0, b"written in place");
    }
}

fn send_pack(store: &dyn Store, root: &[u8], other: &str, how: u8) {
    let (_, inner) = other.split_once('/').unwrap();
    let inner = inner.replace("/.", "");
    let (_, last) = inner.rsplit_once('/').unwrap_or(("", &inner));
    let last = if last == "." { "new" } else { last };
    let entry = |path, content| Entry {
        path,
        metadata: Metadata::default(),
        content,
    };
    let set = Metadata {
        mode: Some(0o711),
        mtime_ns: Some(7),
        ..Metadata::default()
    };
    let entries = [
        entry(last.as_bytes(), Content::File(b"from a pack")),
        entry(inner.as_bytes(), Content::File(b"from a pack")),
        entry(b"made/dir", Content::Directory),
        entry(b"made/link", Content::Symlink(b"../../..")),
        entry(b"hard", Content::HardLink(last.as_bytes())),
        entry(b"d/hard", Content::HardLink(inner.as_bytes())),
        Entry {
            metadata: set.clone(),
            ..entry(last.as_bytes(), Content::Attributes)
        },
        Entry {
            metadata: set,
            ..entry(inner.as_bytes(), Content::Attributes)
        },
    ];
    let how = PackOptions {
        overwrite: how.is_multiple_of(2),
        relaxed: how.is_multiple_of(3),
    };
    let _ = store.write_pack(root, how, &pack_of(&entries));
}

fn take_pack(store: &dyn Store, root: &[u8], names: &[u8], forbidden: &Forbidden) {
    let component = |number: &u8| COMPONENTS[usize::from(*number) % (COMPONENTS.len() - 1)];
    let joined = names.iter().map(component).collect::<Vec<_>>().join("/");
    let mut all: Vec<Vec<u8>> = names.iter().map(|n| component(n).into()).collect();
    all.push(joined.into());
    for follow in [false, true] {
        let request = PackRequest {
            keep: Preserve::default(),
            follow,
            file_bytes_max: 1 << 16,
            names: all.clone(),
        };
        take(store, root, &request, forbidden);
    }
}

fn take(store: &dyn Store, root: &[u8], request: &PackRequest, forbidden: &Forbidden) {
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    if store.read_pack(root, request, &mut writer).is_err() {
        return;
    }
    let (buffer, len) = writer.finish();
    let limits = Limits::default();
    for entry in PackReader::new(&buffer[..len], &limits) {
        match entry.unwrap().content {
            Content::File(bytes) => forbidden.check_bytes(bytes),
            // Nothing outside has this length.
            Content::Large(size) => panic!("a file of {size} bytes"),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 250,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nobody_reaches_beyond_a_scope(who in 0_usize..7, steps in steps()) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        make_tree(root);
        let exports = parse(root, SETTINGS).unwrap();
        let (principal, seen, changed) = &principals()[who];
        let forbidden = Forbidden::of(root, *seen, &*store(&exports, &user("all")));
        let before = picture(root, changed);
        let held = store(&exports, principal);
        let base = match principal.scopes.first() {
            Some(scope) => str::from_utf8(&scope.path).unwrap(),
            None => "part",
        };
        for step in &steps {
            take_step(&*held, base, step, &forbidden);
        }
        let after = picture(root, changed);
        prop_assert!(before == after, "changed: {:?}", differences(&before, &after));
    }
}

fn differences(before: &Picture, after: &Picture) -> Vec<PathBuf> {
    let all = before.keys().chain(after.keys());
    let differ = all.filter(|path| before.get(*path) != after.get(*path));
    differ.cloned().collect()
}

/// The former escape from tokens: a link that stays within the export, at another depth.
#[test]
fn a_link_that_is_moved_leads_nowhere_else() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    make_tree(root);
    let exports = parse(root, SETTINGS).unwrap();
    let token = store(&exports, &scoped("token", &[("data/in", Rights::ALL)]));
    let ask = |call: Call| token.call(&call, &mut |_| Ok(()));
    let rename = |from: &str, to: &str| {
        ask(Call::Rename {
            from: from.into(),
            to: to.into(),
            overwrite: false,
        })
    };
    let denied = |result: Result<Answer, Fault>, path: &str| {
        assert_fault(result, Code::PermissionDenied, path);
    };
    denied(rename("data/in/b/d/out", "data/in/b/l"), "data/in/b/d/out");
    denied(
        rename("data/in/b/d/out", "data/in/b/d/l"),
        "data/in/b/d/out",
    );
    let link = Call::Link {
        existing: b"data/in/b/d/up".into(),
        path: b"data/in/l".into(),
    };
    denied(ask(link), "data/in/b/d/up");
    let entry = Entry {
        path: b"l",
        metadata: Metadata::default(),
        content: Content::HardLink(b"b/d/up"),
    };
    let failures = token
        .write_pack(b"data/in", OVERWRITE, &pack_of(&[entry]))
        .unwrap();
    assert_eq!(failures.of(0).unwrap().code, Code::PermissionDenied);
    // Renaming its directory moves the link, which then leads nowhere.
    rename("data/in/b/d", "data/in/d").unwrap();
    assert_fault(
        read(&*token, "data/in/d/far/hidden-1"),
        Code::PathEscape,
        "data/in/d/far/hidden-1",
    );
    // Links that stay inside are followed as before.
    assert_eq!(read(&*token, "data/in/b/up/a").unwrap(), b"inside 0");
    assert_eq!(read(&*token, "data/in/chain/b/c").unwrap(), b"inside 1");
    let all = store(&exports, &user("all"));
    let content = read(&*all, "data/in/b/far/hidden-1").unwrap();
    assert!(content.starts_with(SECRET));
}

#[test]
fn a_scope_may_be_a_file_or_not_be_there_yet() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    make_tree(root);
    let exports = parse(root, SETTINGS).unwrap();
    let held = |path: &str| store(&exports, &scoped("token", &[(path, Rights::ALL)]));
    assert_eq!(read(&*held("data/in/a"), "data/in/a").unwrap(), b"inside 0");
    put(&*held("data/in/a"), &forced("data/in/a"), 3).unwrap();
    assert_eq!(text(&root.join("in/a")).len(), 3);
    put(&*held("data/in/new"), &request("data/in/new"), 3).unwrap();
    let make = Call::MakeDirectory {
        path: b"data/in/x/y".into(),
        mode: None,
        parents: true,
    };
    held("data/in/x").call(&make, &mut |_| Ok(())).unwrap();
    put(&*held("data/in/x"), &request("data/in/x/y/f"), 3).unwrap();
    // A link in the place of a scope, or on the path to it, isn't followed.
    for (scope, path) in [
        ("data/in/b/up", "data/in/b/up/a"),
        ("data/way/b", "data/way/b/c"),
    ] {
        assert_fault(read(&*held(scope), path), Code::PathEscape, path);
    }
    symlink("../hidden-1", root.join("in/l")).unwrap();
    assert_fault(
        read(&*held("data/in/l"), "data/in/l"),
        Code::PathEscape,
        "data/in/l",
    );
    drop(File::open(root.join("in/l")).unwrap());
}
