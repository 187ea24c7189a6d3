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
example!(own_door, "../../examples/own_door.rs");
example!(own_driver, "../../examples/own_driver.rs");
example!(own_store, "../../examples/own_store.rs");
example!(remote_file, "../../examples/remote_file.rs");
example!(tree_with_filters, "../../examples/tree_with_filters.rs");
example!(tuned_options, "../../examples/tuned_options.rs");
example!(upload, "../../examples/upload.rs");

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::sync::Arc;

use xdfs::security::{ExportConfig, ExportsConfig, GrantConfig, Rights, ServerSecurity};
use xdfs::{Observer, Progress, RemotePlace, Server, ServerBuilder};

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

/// A client of the door, which asks for sizes.
struct Asking(BufReader<TcpStream>);

impl Asking {
    fn at(server: &Server) -> Self {
        let (protocol, address) = server.further_addresses().next().unwrap();
        assert_eq!(protocol, "stat");
        Self(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    /// The answer to a line; empty at the end of the connection.
    fn ask(&mut self, line: &str) -> String {
        // The server may have ended the connection.
        let _ = self.0.get_mut().write_all(format!("{line}\n").as_bytes());
        let mut answer = String::new();
        // So it may by a reset.
        let _ = self.0.read_line(&mut answer);
        answer.trim_end().to_owned()
    }
}

#[test]
fn own_door_serves_what_everybody_has() {
    let folders = Folders::new(920);
    fs::write(folders.there("file"), "12345").unwrap();
    let server = ServerBuilder {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        root: folders.root(),
        doors: vec![Arc::new(own_door::StatDoor::at("127.0.0.1:0").unwrap())],
        ..ServerBuilder::default()
    };
    let server = server.bind().unwrap();
    let mut asking = Asking::at(&server);
    let handle = server.handle();
    let serving = std::thread::spawn(move || server.run());
    assert_eq!(asking.ask("stat file"), "ok 5");
    assert_eq!(asking.ask("stat none"), "not-found");
    assert_eq!(asking.ask("put file"), "invalid-argument");
    handle.shutdown();
    assert_eq!(asking.ask("stat file"), "");
    serving.join().unwrap().unwrap();
}

/// A door of another crate is checked, audited, reloaded and drained as those of the library are.
#[test]
fn own_door_has_the_users_of_the_server() {
    let folders = Folders::new(921);
    fs::write(folders.there("file"), "12345").unwrap();
    let audit = folders.here("audit");
    let builder = |is_public: bool, at: &str| {
        let mut security = ServerSecurity::new(folders.here("server"), "owner".into());
        security.audit = Some(audit.clone());
        let export = ExportConfig {
            name: "open".into(),
            path: folders.root().to_str().unwrap().into(),
            public: is_public,
            grant: vec![GrantConfig {
                user: Some("owner".into()),
                group: None,
                rights: Rights::READ,
            }],
            ..ExportConfig::default()
        };
        security.exports = Some(ExportsConfig {
            export: vec![export],
            ..ExportsConfig::default()
        });
        ServerBuilder {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            security: Some(security),
            doors: vec![Arc::new(own_door::StatDoor::at(at).unwrap())],
            ..ServerBuilder::default()
        }
    };
    let server = builder(true, "127.0.0.1:0").bind().unwrap();
    let mut asking = Asking::at(&server);
    let handle = server.handle();
    let serving = std::thread::spawn(move || server.run());
    assert_eq!(asking.ask("stat open/file"), "ok 5");
    assert_eq!(asking.ask("stat file"), "not-found");
    // Its settings are compared, and the rules are those of now.
    let reloaded = handle.reload(builder(false, "127.0.0.1:1")).unwrap();
    assert_eq!(reloaded.unchanged, ["stat"]);
    assert_eq!(asking.ask("stat open/file"), "authentication-failed");
    let without = ServerBuilder {
        doors: Vec::new(),
        ..builder(true, "127.0.0.1:0")
    };
    assert_eq!(handle.reload(without).unwrap().unchanged, ["stat"]);
    assert_eq!(asking.ask("stat open/file"), "ok 5");
    handle.shutdown();
    assert_eq!(asking.ask("stat open/file"), "");
    serving.join().unwrap().unwrap();
    let log = fs::read_to_string(&audit).unwrap();
    let lines = log.lines().filter(|line| line.contains("\"stat\""));
    assert!(lines.count() >= 2, "{log}");
}

#[test]
fn own_door_is_checked_with_the_other_settings() {
    let folders = Folders::new(922);
    let faults = |listen: &str, at: &str, change: &dyn Fn(&mut ServerBuilder)| {
        let mut builder = ServerBuilder {
            listen: vec![listen.parse().unwrap()],
            root: folders.root(),
            doors: vec![Arc::new(own_door::StatDoor::at(at).unwrap())],
            ..ServerBuilder::default()
        };
        change(&mut builder);
        let report = builder.check();
        let faults = report.faults.iter();
        let faults = faults.map(|found| (found.setting, found.fault.cause.clone()));
        faults.collect::<Vec<_>>()
    };
    let none = |_: &mut ServerBuilder| ();
    assert_eq!(faults("127.0.0.1:0", "127.0.0.1:4001", &none), []);
    let insecure = |builder: &mut ServerBuilder| builder.insecure = true;
    for (at, change, words) in [
        (
            "127.0.0.1:4001",
            &none as &dyn Fn(&mut ServerBuilder),
            "another listener",
        ),
        ("0.0.0.0:4002", &none, "not a loopback address"),
        ("0.0.0.0:4001", &insecure, "another listener"),
    ] {
        let found = faults("127.0.0.1:4001", at, change);
        let [(setting, cause)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!(*setting == "stat" && cause.contains(words), "{found:?}");
    }
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
