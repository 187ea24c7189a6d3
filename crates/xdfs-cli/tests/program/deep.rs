//! Trees with paths that are longer than the system and the protocol take. What is within the
//! bounds is copied, and each entry beyond them is an error that names the reason.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::{read, write};

use crate::support::{Place, Run, Server, xdfs};

/// Directories, of which each is in the one before: about 25 * 204 bytes.
const DEPTH: usize = 25;
/// Longest path that is copied.
const PATH_BYTES_MAX: usize = 4096;

fn directory_name(level: usize) -> String {
    format!("{level:03}-{}", "d".repeat(200))
}

fn open(directory: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    openat(directory, name, OFlags::RDONLY, Mode::empty())
}

/// Makes the tree, with a file in each directory.
fn make(root: &Path) {
    fs::create_dir(root).unwrap();
    let mut directory = openat(CWD, root, OFlags::RDONLY, Mode::empty()).unwrap();
    for level in 0..=DEPTH {
        let flags = OFlags::WRONLY | OFlags::CREATE;
        let file = openat(&directory, "f", flags, Mode::from_raw_mode(0o644)).unwrap();
        write(file, format!("level {level}").as_bytes()).unwrap();
        if level < DEPTH {
            let name = directory_name(level);
            mkdirat(&directory, &name, Mode::from_raw_mode(0o755)).unwrap();
            directory = open(&directory, &name).unwrap();
        }
    }
}

/// Number of directories with their files in a copy of the tree; fails unless they are right.
#[track_caller]
fn levels(root: &Path) -> usize {
    let mut directory = openat(CWD, root, OFlags::RDONLY, Mode::empty()).unwrap();
    for level in 0..=DEPTH {
        let mut bytes = [0; 32];
        match open(&directory, "f") {
            Ok(file) => {
                let count = read(file, &mut bytes).unwrap();
                assert_eq!(&bytes[..count], format!("level {level}").as_bytes());
            }
            Err(_) => return level,
        }
        if level < DEPTH {
            match open(&directory, &directory_name(level)) {
                Ok(below) => directory = below,
                Err(_) => return level + 1,
            }
        }
    }
    DEPTH + 1
}

/// The command has failed for the entries that are too deep, with the reason.
#[track_caller]
fn named(run: Run) -> Run {
    let run = run.fails(6, &["error: "]);
    for line in run
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
    {
        let says = ["4096", "too long"].iter().any(|word| line.contains(word));
        assert!(says, "{line}");
    }
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    run
}

#[test]
fn what_is_within_the_bounds_is_copied() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let tree = place.here("tree");
    make(Path::new(&tree));
    make(&place.remote("tree"));
    // Each directory has this many bytes more, with its slash.
    let step = directory_name(0).len() + 1;
    let least = (PATH_BYTES_MAX - tree.len()) / step;
    let url = server.url("/tree");
    for (number, words) in [&["cp", "-r"][..], &["sync"], &["cp", "-a"], &["sync", "-a"]]
        .into_iter()
        .enumerate()
    {
        let up = format!("/up{number}");
        named(xdfs([words, &[&tree, &server.url(&up)]].concat()));
        assert!(levels(&place.remote(&up[1..])) >= least, "{words:?}");
        let down = place.here(&format!("down{number}"));
        named(xdfs([words, &[&url, &down]].concat()));
        assert!(levels(Path::new(&down)) >= least, "{words:?}");
        if !words.contains(&"-a") {
            let between = format!("/between{number}");
            named(xdfs([words, &[&url, &server.url(&between)]].concat()));
            assert!(levels(&place.remote(&between[1..])) >= least, "{words:?}");
        }
        // Once more nothing else fails, and nothing is lost.
        let again = match words[0] {
            "sync" => [words, &["--delete", "--force"]].concat(),
            _ => words.to_vec(),
        };
        named(xdfs([&again[..], &[&tree, &server.url(&up)]].concat()));
        named(xdfs(
            [&again[..], &["--dry-run", &tree, &server.url("/dry")]].concat(),
        ));
        assert!(levels(&place.remote(&up[1..])) >= least, "{words:?}");
        assert!(!place.remote("dry").exists());
    }
    assert_eq!(levels(Path::new(&tree)), DEPTH + 1);
    // Entries that are too deep at the target already aren't compared.
    let url = server.url("/tree");
    named(xdfs(["sync", "--delete", &tree, &url]));
    named(xdfs(["cp", "-rf", &tree, &server.url("/")]));
    assert_eq!(levels(&place.remote("tree")), DEPTH + 1);
}

/// Targets that are deep themselves, so that what is short at the source isn't at the target.
#[test]
fn a_deep_target_takes_what_it_can() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.here("source");
    fs::create_dir_all(format!("{source}/{}", "s".repeat(200))).unwrap();
    let small = format!("{source}/small");
    fs::write(&small, "small").unwrap();
    fs::write(format!("{source}/{}/small", "s".repeat(200)), "small").unwrap();
    fs::write(format!("{source}/large"), vec![7; 3 << 20]).unwrap();
    for (number, room) in [20, 120, 250].into_iter().enumerate() {
        for words in [&["cp", "-r"][..], &["sync"]] {
            // A path of a directory that leaves this room.
            for is_there in [false, true] {
                let top = format!("/t{number}{}{is_there}", words[0]);
                let start = match is_there {
                    true => place.here(&top[1..]),
                    false => top.clone(),
                };
                let mut path = start.clone();
                while path.len() + 200 < PATH_BYTES_MAX - room {
                    path += "/";
                    path += &"t".repeat((PATH_BYTES_MAX - room - path.len() - 1).min(200));
                }
                let (from, to) = match is_there {
                    true => {
                        fs::create_dir_all(&path).unwrap();
                        let url = server.url(&format!("/source{number}{}", words[0]));
                        let copied = place.remote(&format!("source{number}{}", words[0]));
                        if !copied.exists() {
                            xdfs(["cp", "-r", &source, &url]).ok();
                        }
                        (url, path.clone())
                    }
                    false => {
                        let above = path.rsplit_once('/').unwrap().0;
                        xdfs(["mkdir", "-p", &server.url(above)]).ok();
                        (source.clone(), server.url(&path))
                    }
                };
                let run = xdfs([words, &["--json", &from, &to]].concat());
                let is_panic = run.stderr.contains("panicked");
                assert!(!is_panic && run.code != Some(101), "{}", run.stderr);
                assert!(matches!(run.code, Some(0 | 6)), "{room}: {}", run.stderr);
                let says = ["4096", "too long"]
                    .iter()
                    .any(|word| run.stderr.contains(word));
                assert_eq!(says, run.code == Some(6), "{room}: {}", run.stderr);
            }
        }
    }
}
