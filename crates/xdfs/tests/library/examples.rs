//! Each example is run against a server in this process, and what came of it is looked at.

macro_rules! example {
    ($name:ident, $path:literal) => {
        #[path = $path]
        #[expect(dead_code, reason = "its main function is that of a program")]
        mod $name;
    };
}

example!(asynchronous, "../../examples/asynchronous.rs");
example!(
    download_with_progress,
    "../../examples/download_with_progress.rs"
);
example!(own_driver, "../../examples/own_driver.rs");
example!(own_store, "../../examples/own_store.rs");
example!(remote_file, "../../examples/remote_file.rs");
example!(tree_with_filters, "../../examples/tree_with_filters.rs");
example!(tuned_options, "../../examples/tuned_options.rs");
example!(upload, "../../examples/upload.rs");

use std::fs;
use std::ops::ControlFlow;

use xdfs::{Observer, Progress, RemotePlace};

use crate::support::{Folders, Serving, assert_equal};

fn place(server: &Serving, path: &str) -> RemotePlace {
    format!("xdfs://{}{path}", server.addr).parse().unwrap()
}

#[test]
fn upload_brings_a_file_over() {
    let folders = Folders::new(900);
    let server = Serving::start(&folders.root(), |_| {});
    let source = folders.make_here("source", 3 << 20);
    let target = place(&server, "/target");
    // Twice: it replaces what is there.
    for _ in 0..2 {
        let result = upload::upload(&source, &target).unwrap();
        assert_eq!(
            (result.bytes, &result.target[..]),
            (3 << 20, &b"/target"[..])
        );
        assert_equal(&source, &folders.there("target"));
    }
}

#[test]
fn download_with_progress_tells_how_far_it_is() {
    struct Heard(Vec<Progress>);
    impl Observer for Heard {
        fn on_transfer(&mut self, progress: &Progress) -> ControlFlow<()> {
            self.0.push(progress.clone());
            match self.0.len() {
                3 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let folders = Folders::new(901);
    let server = Serving::start(&folders.root(), |_| {});
    let source = folders.make_there("source", 5 << 20);
    let target = folders.here("target");
    let place = place(&server, "/source");
    let mut silent = xdfs::Silent;
    let result = download_with_progress::download(&place, &target, &mut silent).unwrap();
    assert_eq!(result.bytes, 5 << 20);
    assert_equal(&source, &target);
    let mut heard = Heard(Vec::new());
    let larger = folders.make_there("larger", 64 << 20);
    let place = RemotePlace {
        path: b"/larger".to_vec(),
        ..place
    };
    let target = folders.here("larger");
    let ended = download_with_progress::download(&place, &target, &mut heard);
    match ended {
        // It was stopped by its third word.
        Err(fault) => {
            assert_eq!(fault.code, xdfs::Code::Cancelled, "{fault}");
            assert_eq!(heard.0.len(), 3);
            assert!(!target.exists());
        }
        // It was through before.
        Ok(_) => assert_equal(&larger, &target),
    }
    let totals = heard.0.iter().filter_map(|progress| progress.bytes_total);
    assert!(totals.into_iter().all(|total| total == 64 << 20));
    assert!(heard.0.is_sorted_by_key(|progress| progress.bytes));
}

#[test]
fn tree_with_filters_leaves_out_what_matches() {
    let folders = Folders::new(902);
    let server = Serving::start(&folders.root(), |_| {});
    for directory in ["tree", "tree/src", "tree/target"] {
        fs::create_dir(folders.here(directory)).unwrap();
    }
    for file in ["src/a.rs", "src/a.o", "target/b", "c"] {
        folders.make_here(&format!("tree/{file}"), 1000);
    }
    let patterns = ["*.o".to_owned(), "/target/".to_owned()];
    let place = place(&server, "/copy");
    let result = tree_with_filters::upload_tree(&folders.here("tree"), &place, &patterns).unwrap();
    assert_eq!((result.files, result.failed), (2, 0));
    for file in ["src/a.rs", "c"] {
        let [here, there] = ["tree", "copy"].map(|at| format!("{at}/{file}"));
        assert_equal(&folders.here(&here), &folders.there(&there));
    }
    for absent in ["copy/src/a.o", "copy/target"] {
        assert!(!folders.there(absent).exists(), "{absent}");
    }
}

#[test]
fn remote_file_adds_records_in_place() {
    let folders = Folders::new(903);
    let server = Serving::start(&folders.root(), |_| {});
    let place = place(&server, "/log");
    for (count, content) in (1..).zip(["first", "second", "the third"]) {
        let added = remote_file::add_record(&place, content.as_bytes()).unwrap();
        assert_eq!(added, count);
    }
    assert_eq!(remote_file::read_record(&place, 1).unwrap(), b"second");
    assert!(remote_file::read_record(&place, 3).is_err());
    let log = fs::read(folders.there("log")).unwrap();
    assert_eq!(log.len(), 64);
    assert_eq!(log[..8], 3_u64.to_le_bytes());
    assert_eq!(&log[48..], b"the third       ");
}

#[test]
fn asynchronous_awaits_a_queue_and_calls() {
    let folders = Folders::new(904);
    let server = Serving::start(&folders.root(), |_| {});
    let names = ["a", "b", "c", "d", "e", "f"];
    let files = names.map(|name| folders.make_here(name, 1000 * u64::from(name.as_bytes()[0])));
    let paths: Vec<_> = files.iter().map(|path| &**path).collect();
    let place = place(&server, "/");
    let sizes = asynchronous::block_on(asynchronous::upload_all(&place, &paths)).unwrap();
    assert_eq!(sizes, [97_000, 98_000, 99_000, 100_000, 101_000, 102_000]);
    for (name, file) in names.iter().zip(&files) {
        assert_equal(file, &folders.there(name));
    }
    // What fails comes out of the await.
    fs::remove_file(&files[1]).unwrap();
    let place = RemotePlace {
        path: b"/other".to_vec(),
        ..place
    };
    let failed = asynchronous::block_on(asynchronous::upload_all(&place, &paths[1..2]));
    assert_eq!(failed.unwrap_err().code, xdfs::Code::NotFound);
}

#[test]
fn own_store_is_read_and_written() {
    let folders = Folders::new(905);
    let server = Serving::start(&folders.root(), |_| {});
    let count = 200_000_u64;
    let expected: Vec<u8> = (0..count).flat_map(|n| (n * n).to_le_bytes()).collect();
    let back = own_store::there_and_back(&place(&server, "/squares"), count).unwrap();
    assert!(back == expected, "what came back differs");
    assert!(fs::read(folders.there("squares")).unwrap() == expected);
    assert_eq!(
        own_store::there_and_back(&place(&server, "/none"), 0).unwrap(),
        b""
    );
}

#[test]
fn own_driver_is_in_both_ends() {
    let folders = Folders::new(906);
    let source = folders.make_here("source", 3 << 20);
    let server = own_driver::serve(&folders.root(), "tcp,turn:by=200,turn:by=7").unwrap();
    let server = Serving::run(server);
    let there = place(&server, "/target");
    let bytes = own_driver::upload(&source, &there, "tcp,turn:by=200,turn:by=7").unwrap();
    assert_eq!(bytes, 3 << 20);
    assert_equal(&source, &folders.there("target"));
    // It is really in the way: with others the ends don't understand each other.
    for other in ["tcp", "tcp,turn:by=200", "tcp,turn:by=200,turn:by=8"] {
        let other_place = place(&server, "/other");
        let failed = own_driver::upload(&source, &other_place, other);
        assert!(failed.is_err(), "{other}");
        assert!(!folders.there("other").exists());
    }
    let unknown = own_driver::upload(&source, &there, "tcp,twist").unwrap_err();
    assert!(unknown.to_string().contains("twist"), "{unknown}");
    let wrong = own_driver::upload(&source, &there, "tcp,turn:by=300").unwrap_err();
    assert!(wrong.to_string().contains("0 to 255"), "{wrong}");
}

#[test]
fn tuned_options_are_found_within_bounds() {
    let folders = Folders::new(907);
    let server = Serving::start(&folders.root(), |_| {});
    let few = xdfs::TuneOptions {
        channels: vec![1, 2],
        windows: vec![None],
        bytes_max: 64 << 20,
        ..xdfs::TuneOptions::default()
    };
    let (options, gain) = tuned_options::tuned_options(&place(&server, "/"), &few).unwrap();
    // Which one is faster is not known here; the default was no number at all.
    assert!(gain >= 1.0, "{gain}");
    assert!(options.channels.is_none_or(|n| n <= 2), "{options:?}");
    assert!(fs::read_dir(folders.root()).unwrap().next().is_none());
    let none = xdfs::TuneOptions {
        windows: Vec::new(),
        ..few
    };
    let refused = tuned_options::tuned_options(&place(&server, "/"), &none).unwrap_err();
    assert_eq!(refused.code, xdfs::Code::InvalidArgument);
}
