//! Random sequences of calls, against the standard library in a second folder.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c\n", "d d"];

fn a_path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&NAMES[..]), 1..4).prop_map(|names| names.join("/"))
}

fn a_call() -> impl Strategy<Value = Call> {
    let two = || (a_path(), a_path());
    prop_oneof![
        3 => (a_path(), any::<bool>()).prop_map(|(path, parents)| make(path, parents)),
        1 => a_path().prop_map(remove_file),
        1 => a_path().prop_map(remove_directory),
        1 => a_path().prop_map(remove_tree),
        2 => (two(), any::<bool>()).prop_map(|((a, b), overwrite)| rename(a, b, overwrite)),
        3 => (two(), any::<bool>()).prop_map(|((a, b), overwrite)| copy(a, b, overwrite)),
        2 => two().prop_map(|(a, b)| link(a, b)),
        2 => (prop::sample::select(&NAMES[..]), a_path()).prop_map(|(a, b)| symlink(a, b)),
        2 => (a_path(), 0_u64..100).prop_map(|(path, length)| truncate(path, length)),
        1 => (a_path(), 0_u32..0o1000).prop_map(|(path, mode)| set_mode(path, mode | 0o700)),
        1 => a_path().prop_map(read_link),
        1 => (a_path(), any::<bool>()).prop_map(|(path, follow)| stat(path, follow)),
    ]
}

/// The same as a call, by the standard library.
fn model(root: &Path, call: &Call) -> io::Result<()> {
    let at = |path: &[u8]| -> PathBuf { root.join(std::ffi::OsStr::from_bytes(path)) };
    let taken = || io::Error::from(io::ErrorKind::AlreadyExists);
    match call {
        Call::MakeDirectory { path, parents, .. } => {
            if *parents {
                std::fs::create_dir_all(at(path))
            } else {
                std::fs::create_dir(at(path))
            }
        }
        Call::RemoveFile { path } => std::fs::remove_file(at(path)),
        Call::RemoveDirectory { path } => std::fs::remove_dir(at(path)),
        Call::RemoveTree { path } => {
            // The library removes a file, too.
            if at(path).symlink_metadata()?.is_dir() {
                std::fs::remove_dir_all(at(path))
            } else {
                Err(io::ErrorKind::NotADirectory.into())
            }
        }
        Call::Rename {
            from,
            to,
            overwrite,
        } => {
            at(from).symlink_metadata()?;
            if !overwrite && exists(&at(to)) {
                return Err(taken());
            }
            std::fs::rename(at(from), at(to))
        }
        Call::Copy {
            from,
            to,
            overwrite,
        } => {
            let content = std::fs::read(at(from))?;
            let mode = at(from).metadata()?.permissions();
            match at(to).metadata() {
                Ok(meta) if meta.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
                // Where a loop of links would end can't be known.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            if exists(&at(to)) {
                if !overwrite {
                    return Err(taken());
                }
                std::fs::remove_file(at(to))?;
            }
            std::fs::write(at(to), content)?;
            std::fs::set_permissions(at(to), mode)
        }
        Call::Link { existing, path } => std::fs::hard_link(at(existing), at(path)),
        Call::Symlink { target, path } => {
            std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), at(path))
        }
        Call::Truncate { path, length } => {
            let file = std::fs::OpenOptions::new().write(true).open(at(path))?;
            file.set_len(*length)
        }
        Call::SetMode { path, mode } => {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(*mode);
            std::fs::set_permissions(at(path), mode)
        }
        Call::ReadLink { path } => std::fs::read_link(at(path)).map(|_| ()),
        Call::Stat { path, follow } => {
            let meta = if *follow {
                at(path).metadata()
            } else {
                at(path).symlink_metadata()
            };
            meta.map(|_| ())
        }
        other => panic!("{other:?}"),
    }
}

/// Everything in a tree: path, kind, mode, content.
fn snapshot(dir: &Path) -> Vec<String> {
    fn visit(root: &Path, dir: &Path, out: &mut Vec<String>) {
        use std::os::unix::fs::MetadataExt;
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let content = if meta.is_file() {
                format!(
                    "{:?}, {} names",
                    std::fs::read(&path).unwrap(),
                    meta.nlink()
                )
            } else if meta.is_symlink() {
                format!("{:?}", std::fs::read_link(&path).unwrap())
            } else {
                String::new()
            };
            let name = path.strip_prefix(root).unwrap();
            out.push(format!("{name:?} {:o} {content}", meta.mode()));
            if meta.is_dir() {
                visit(root, &path, out);
            }
        }
    }
    let mut out = Vec::new();
    visit(dir, dir, &mut out);
    out.sort();
    out
}

/// What a listing and the attributes say of a tree, against what the library says.
fn assert_listed(store: &LocalStore, dir: &Path, path: &[u8]) {
    let at = dir.join(std::ffi::OsStr::from_bytes(path));
    let (entries, _) = list_all(store, path, 3);
    let listed: Vec<_> = entry_names(&entries);
    let expected: Vec<_> = names(&at).into_iter().map(String::into_bytes).collect();
    assert_eq!(listed, expected);
    for entry in entries {
        if entry.attributes.kind == xdfs_proto::path::FileKind::Directory {
            let inner = if path.is_empty() {
                entry.name
            } else {
                [path, b"/", &entry.name].concat()
            };
            assert_listed(store, dir, &inner);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_calls_makes_a_difference(
        calls in prop::collection::vec(a_call(), 1..60)
    ) {
        let temp = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| temp.path().join(name));
        for dir in [&ours, &theirs] {
            std::fs::create_dir_all(dir.join("a/b")).unwrap();
            std::fs::write(dir.join("b"), "content").unwrap();
            std::fs::write(dir.join("a/d d"), "more").unwrap();
        }
        let store = rooted(&ours);
        for call in &calls {
            let (mine, other) = (ask(&store, call), model(&theirs, call));
            prop_assert_eq!(mine.is_ok(), other.is_ok(), "{:?}: {:?} {:?}", call, mine, other);
            prop_assert_eq!(snapshot(&ours), snapshot(&theirs), "{:?}", call);
        }
        assert_listed(&store, &ours, b"");
    }
}
