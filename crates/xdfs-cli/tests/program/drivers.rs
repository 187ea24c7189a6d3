//! Drivers in shared libraries, built from C here and loaded by the program.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use crate::library;
use crate::support::{Place, Run, Running, Server, assert_content, content, program, xdfs};

const ROT47: &str = "examples/driver-c/rot47.c";
const HOSTILE: &str = "crates/xdfs-xio/tests/foreign/hostile.c";

/// Returns early, and tells why, where there is no compiler.
macro_rules! built {
    ($source:expr) => {
        match library::build($source, &[]) {
            Some(library) => library.to_str().unwrap().to_owned(),
            None => return xdfs_testkit::skip::test("this machine has no C compiler"),
        }
    };
}

/// The URL of a path on an address that has a stack before it.
fn url(server: &Server, number: usize, path: &str) -> String {
    let address = &server.addresses[number];
    let address = address.rsplit_once("://").map_or(&**address, |(_, a)| a);
    format!("xdfs://{address}{path}")
}

#[test]
fn both_ends_use_a_driver_in_c() {
    let library = built!(ROT47);
    let place = Place::new();
    let source = place.make_here("source", &content(1, 3 << 20));
    for flags in [&["--insecure"][..], &[]] {
        let listen = "tcp,rot47:by=13://127.0.0.1:0";
        let serve = [&["--driver", &library, "--listen", listen], flags].concat();
        let server = Server::start_with(&place.root(), &serve);
        assert!(server.addresses[0].starts_with("tcp,rot47:by=13"));
        let target = url(&server, 0, "/up");
        let stack = ["--driver", &library, "--stack", "tcp,rot47:by=13"];
        let cp = |words: &[&str]| xdfs([&["cp", "--force"], flags, words].concat());
        cp(&[&stack[..], &["-n", "4", &source, &target]].concat()).ok();
        assert_content(place.remote("up"), &content(1, 3 << 20));
        let back = place.here("back");
        cp(&[&stack[..], &[&target, &back]].concat()).ok();
        assert_content(&back, &content(1, 3 << 20));
        // Without the driver, or with another distance, nothing is understood.
        for stack in ["tcp", "tcp,rot47:by=12"] {
            let words = ["--retries", "0", "--driver", &library, "--stack", stack];
            let run = cp(&[&words[..], &[&source, &target]].concat());
            assert_ne!(run.code, Some(0), "{stack}: {}", run.stderr);
        }
        cp(&["--stack", "tcp,rot47", &source, &target])
            .fails(2, &["unknown driver 'rot47'; there are buffer, digest"]);
    }
}

#[test]
fn directories_of_drivers_are_configured() {
    let library = built!(ROT47);
    let place = Place::new();
    let folder = PathBuf::from(place.here("config/drivers"));
    fs::create_dir_all(&folder).unwrap();
    fs::copy(&library, folder.join("rot47.so")).unwrap();
    place.make_here("config/config.toml", b"drivers = \"drivers\"\n");
    let source = place.make_here("source", &content(2, 100_000));
    let config = place.make_here(
        "server.toml",
        b"listen = [\"tcp,rot47://127.0.0.1:0\"]\ndrivers = \"config/drivers\"\ninsecure = true\n",
    );
    let checked = xdfs(["serve", "--config", &config, "--check-config"]).ok();
    assert!(checked.text().contains("would listen on tcp,rot47://"));
    let server = Server::start_with(&place.root(), &["--config", &config]);
    let own = |words: &[&str]| -> Run {
        let mut command = program();
        command.env("XDFS_CONFIG_DIR", place.here("config"));
        Running::start(command.args(words).stdin(Stdio::null())).wait()
    };
    let target = url(&server, 0, "/up");
    let cp = ["cp", "--insecure", "--stack", "tcp,rot47", &source, &target];
    own(&cp).ok();
    assert_content(place.remote("up"), &content(2, 100_000));
    // The same file by the flag too, and a URL that names the stack.
    own(&[&cp[..2], &["--driver", &library], &cp[2..]].concat())
        .fails(2, &["its name 'rot47' is taken by the driver in"]);
    let file = folder.join("rot47.so");
    let flag = ["--force", "--driver", file.to_str().unwrap()];
    own(&[&cp[..2], &flag, &cp[2..]].concat()).ok();
    let named = target.replacen("xdfs://", "xdfs+tcp+rot47://", 1);
    let listed = own(&["ls", "--insecure", &named]).ok();
    assert!(listed.text().contains("up"), "{}", listed.text());
    // One that can't be loaded is no reason to go on without it.
    fs::write(folder.join("second.so"), "text").unwrap();
    let words = ["second.so", "no library that can be loaded"];
    own(&cp).fails(2, &words);
    xdfs(["serve", "--config", &config, "--check-config"]).fails(2, &words);
    fs::remove_file(folder.join("second.so")).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let words = ["others than its owner may write to", "chmod go-w"];
    own(&cp).fails(5, &words);
    xdfs(["serve", "--config", &config, "--check-config"]).fails(2, &words);
}

#[test]
fn what_cannot_be_loaded_is_told() {
    let place = Place::new();
    let text = place.make_here("text.so", b"I am a driver\n");
    let source = place.make_here("source", b"x");
    let none = place.here("none.so");
    for (file, code, words) in [
        (
            &text,
            2,
            &["load a driver", "text.so", "xdfs_xio_driver.h"][..],
        ),
        (&none, 4, &["load a driver", "none.so", "no such file"]),
    ] {
        xdfs(["cp", "--driver", file, &source, "xdfs://127.0.0.1:1/x"]).fails(code, words);
        xdfs(["serve", "--driver", file]).fails(code, words);
    }
}

/// A driver that lies has a stream that fails; the server goes on.
#[test]
fn a_lying_driver_costs_its_channels() {
    let library = built!(HOSTILE);
    let place = Place::new();
    let source = place.make_here("source", &content(3, 1 << 20));
    for mode in [
        "decode_used",
        "decode_filled",
        "encode_huge",
        "encode_stuck",
    ] {
        let listen = format!("tcp,hostile:mode={mode}://127.0.0.1:0");
        let flags = ["--insecure", "--driver", &library];
        let more = ["--listen", &listen, "--listen", "127.0.0.1:0"];
        let server = Server::start_with(&place.root(), &[&flags[..], &more].concat());
        let cp = |words: &[&str]| {
            let given = ["cp", "--insecure", "--force", "--retries", "0"];
            xdfs([&given, words].concat())
        };
        for _ in 0..2 {
            let run = cp(&[&source, &url(&server, 0, "/lost")]);
            assert_ne!(run.code, Some(0), "{mode}");
        }
        assert!(!place.remote("lost").exists());
        let plain = url(&server, 1, "/kept");
        cp(&[&source, &plain]).ok();
        assert_content(place.remote("kept"), &content(3, 1 << 20));
        // At the client's end the reason is told.
        let stack = format!("tcp,hostile:mode={mode}");
        let run = cp(&["--driver", &library, "--stack", &stack, &source, &plain]);
        assert_ne!(run.code, Some(0), "{mode}");
        assert!(
            run.stderr.contains("the driver 'hostile' "),
            "{mode}: {}",
            run.stderr
        );
    }
}
