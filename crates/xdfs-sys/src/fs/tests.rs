//! Tests of the file system calls, against the standard library where it has the same call.

use std::io::{IoSlice, Write};

use super::*;

#[test]
fn writes_of_many_buffers_arrive_whole_and_in_place() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"head").unwrap();
    // More buffers than one call accepts, including empty ones.
    let pieces: Vec<Vec<u8>> = (0..3000_u32)
        .map(|i| vec![i as u8; (i % 4) as usize])
        .collect();
    let bufs: Vec<IoSlice<'_>> = pieces.iter().map(|p| IoSlice::new(p)).collect();
    write_all_at(&file, &bufs, 4).unwrap();
    let whole: Vec<u8> = pieces.concat();
    let mut read = vec![0; whole.len() + 10];
    let mut got = 0;
    loop {
        match read_at(&file, &mut read[got..], 4 + got as u64).unwrap() {
            0 => break,
            n => got += n,
        }
    }
    assert_eq!(read[..got], whole);
}

#[test]
fn a_rename_without_replacing_leaves_the_target_alone() {
    let temp = tempfile::tempdir().unwrap();
    let dir = Dir::open(temp.path()).unwrap();
    dir.create_new(b"a").unwrap().write_all(b"new").unwrap();
    dir.create_new(b"b").unwrap().write_all(b"old").unwrap();
    let error = dir.rename_new(b"a", b"b").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(temp.path().join("b")).unwrap(), b"old");
    dir.rename(b"a", b"b").unwrap();
    assert_eq!(std::fs::read(temp.path().join("b")).unwrap(), b"new");
    assert!(dir.meta_of(b"a").unwrap().is_none());
    dir.rename_new(b"b", b"c").unwrap();
    assert_eq!(dir.meta_of(b"c").unwrap().unwrap().kind, FileKind::Regular);
}

#[cfg(unix)]
mod unix {
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn the_fallback_of_a_rename_is_as_careful() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        dir.create_new(b"a").unwrap().write_all(b"new").unwrap();
        dir.create_new(b"b").unwrap().write_all(b"old").unwrap();
        let error = dir.link_new(b"a", b"b").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        dir.link_new(b"a", b"c").unwrap();
        assert_eq!(std::fs::read(temp.path().join("c")).unwrap(), b"new");
        assert!(dir.meta_of(b"a").unwrap().is_none());
    }

    /// The walk and the kernel must agree wherever both succeed; the walk may refuse more, but
    /// never less.
    #[test]
    fn the_walk_never_allows_more_than_the_kernel() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        std::fs::create_dir_all(root.join("d/e")).unwrap();
        std::fs::write(root.join("d/e/file"), "in").unwrap();
        std::fs::write(temp.path().join("secret"), "out").unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink(temp.path().join("secret"), root.join("absolute")).unwrap();
        symlink("d/e", root.join("inside")).unwrap();
        symlink("self", root.join("self")).unwrap();
        let handle = rustix::fs::open(&root, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let dir = Dir::open(&root).unwrap();
        let walk = |path: &str| walk::open_beneath(handle.as_fd(), path.as_bytes(), OFlags::RDONLY);
        for good in ["d/e/file", "./d//e/./file", "d", ""] {
            assert!(walk(good).is_ok(), "{good}");
            assert!(
                dir.open_for_reading_beneath(good.as_bytes()).is_ok(),
                "{good}"
            );
        }
        let bad = [
            "..",
            "../secret",
            "d/../../secret",
            "up",
            "absolute",
            "self",
            "/",
            "/etc",
        ];
        for path in bad {
            let refused = dir.open_for_reading_beneath(path.as_bytes());
            assert!(
                matches!(refused, Err(ResolveError::Escapes(_))),
                "{path}: {refused:?}"
            );
        }
        for path in [
            "..",
            "../secret",
            "d/../../secret",
            "up",
            "absolute",
            "self",
            "inside/file",
        ] {
            let refused = walk(path);
            assert!(
                matches!(refused, Err(ResolveError::Escapes(_))),
                "{path}: {refused:?}"
            );
        }
        for path in ["no", "no/file", "d/no"] {
            let kind = |r: Result<_, ResolveError>| match r {
                Err(ResolveError::Io(error)) => Some(error.kind()),
                _ => None,
            };
            let expected = Some(io::ErrorKind::NotFound);
            assert_eq!(kind(walk(path)), expected, "{path}");
            assert_eq!(
                kind(
                    dir.open_for_reading_beneath(path.as_bytes())
                        .map(Into::into)
                ),
                expected
            );
        }
        if cfg!(target_os = "linux") {
            assert!(dir.open_for_reading_beneath(b"inside/file").is_ok());
            assert!(dir.open_for_reading_beneath(b"d/../d/e/file").is_ok());
        }
    }

    #[test]
    fn extents_of_a_sparse_file_are_where_data_was_written() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        write_all_at(&file, &[IoSlice::new(&[7; 4096])], 4 << 20).unwrap();
        let meta = meta(&file).unwrap();
        if meta.allocated.unwrap() >= meta.length {
            return xdfs_testkit::skip::test("this file system makes no sparse files");
        }
        let (start, end) = next_extent(&file, 0).unwrap().unwrap();
        assert!(
            start <= 4 << 20 && start > 0 && end >= (4 << 20) + 4096,
            "{start}..{end}"
        );
        assert_eq!(next_extent(&file, end).unwrap(), None);
        begin_write_back(&file, 0, u64::MAX);
        begin_write_back(&file, 4 << 20, 4096);
    }

    #[test]
    fn preallocation_keeps_the_length() {
        let file = tempfile::tempfile().unwrap();
        preallocate(&file, 1 << 20).unwrap();
        assert_eq!(meta(&file).unwrap().length, 0);
        assert!(space_left(&file).is_none_or(|bytes| bytes > 0));
    }
}

#[cfg(unix)]
#[test]
fn a_path_is_looked_at_with_and_without_the_link_that_it_names() {
    let temp = tempfile::tempdir().unwrap();
    let (path, link) = (temp.path().join("file"), temp.path().join("link"));
    std::fs::write(&path, "12345").unwrap();
    let file = meta(&std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(meta_at(&path, false).unwrap(), file);
    std::os::unix::fs::symlink("file", &link).unwrap();
    assert_eq!(meta_at(&link, true).unwrap(), file);
    assert_eq!(meta_at(&link, false).unwrap().kind, FileKind::Symlink);
    let error = meta_at(&temp.path().join("none"), true).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
