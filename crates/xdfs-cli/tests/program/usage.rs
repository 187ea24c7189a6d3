//! What needs no server: help, version, and refusals of the command line.

use crate::support::{Place, Running, Server, assert_content, program, xdfs};

#[test]
fn help_and_version_go_to_standard_output() {
    let version = xdfs(["--version"]).ok();
    assert_eq!(
        version.text().trim(),
        format!("xdfs {}", env!("CARGO_PKG_VERSION"))
    );
    let help = xdfs(["--help"]).ok().text();
    for word in [
        "serve",
        "cp",
        "perf",
        "demo",
        "completions",
        "Exit codes:",
        "Examples:",
        "130",
    ] {
        assert!(help.contains(word), "{word}");
    }
    for command in ["serve", "cp", "perf", "demo"] {
        assert!(
            xdfs([command, "--help"]).ok().text().contains("Examples:"),
            "{command}"
        );
    }
    let cp = xdfs(["cp", "--help"]).ok().text();
    for flag in [
        "-n, --channels",
        "-b, --block-size",
        "-w, --window",
        "--offset",
        "--length",
        "--limit-rate",
        "--no-resume",
        "--verify-resumed",
        "--digest",
        "-f, --force",
        "--dry-run",
        "--json",
        "-q",
        "-v",
    ] {
        assert!(cp.contains(flag), "{flag}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for args in [
        &["cp", "a"][..],
        &["cp", "-n", "0", "a", "xdfs://h/b"],
        &["cp", "--limit-rate", "fast", "a", "xdfs://h/b"],
        &["mv", "a", "b"],
        &["perf"],
        &["tune"],
        &["tune", "xdfs://h", "--plot", "t.gif"],
        &["serve", "--listen", "1:2:3"],
        &[],
    ] {
        let run = xdfs(args);
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn copies_that_make_no_sense_are_refused_with_a_hint() {
    xdfs(["cp", "xdfs://a/", "xdfs://b/y"]).fails(2, &["does not name a file", "hint: "]);
    xdfs(["cp", "http://h/x", "y"]).fails(2, &["'http' is not a supported protocol"]);
    xdfs(["cp", "xdfs://h:99999/x", "y"]).fails(2, &["not a port"]);
    xdfs(["cp", "--json", "xdfs://h/x", "-"]).fails(2, &["hint: leave out --json"]);
    xdfs(["perf", "xdfs://h/file"]).fails(2, &["names a file"]);
    xdfs(["tune", "xdfs://h/file"]).fails(2, &["names a file"]);
}

#[test]
fn a_directory_as_a_source_needs_a_flag() {
    let place = Place::new();
    xdfs(["cp", &place.here(""), "xdfs://127.0.0.1:1/x"])
        .fails(6, &["directory", "hint: ", "--recursive"]);
}

#[test]
fn refusals_have_a_json_form_too() {
    let run = xdfs(["cp", "--json", "-", "b"]).fails(2, &["error: "]);
    let objects = run.json();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[0]["type"], "error");
    assert_eq!(objects[0]["code"], "invalid-argument");
    assert_eq!(objects[1]["type"], "result");
    assert_eq!(objects[1]["failed"], 1);
    assert_eq!(objects[1]["exit_code"], 2);
}

#[test]
fn a_mistake_in_the_configuration_is_named_with_its_line() {
    let place = Place::new();
    let file = place.make_here("xdfs.toml", b"root = \".\"\nlissten = []\n");
    xdfs(["serve", "--config", &file]).fails(2, &["line 2", "lissten", "xdfs.toml"]);
    xdfs(["serve", "--config", &place.here("none.toml")]).fails(4, &["none.toml"]);
}

/// The long texts of commands reach the user.
#[test]
fn help_says_what_commands_do() {
    for (command, words) in [
        ("cp", "xdfs+unix://"),
        ("sync", "a slash at the end of either changes nothing"),
        ("serve", "~/.ssh"),
        ("rm", "can't be undone"),
    ] {
        let help = xdfs([command, "--help"]).ok().text();
        let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{command}: {help}");
    }
}

#[test]
fn places_that_look_like_those_of_scp_are_explained() {
    let place = Place::new();
    let file = place.make_here("f", b"x");
    xdfs(["cp", &file, "localhost:/b"]).fails(2, &["did you mean xdfs://localhost/b"]);
    let home = "write xdfs://me@far/d/f or ssh://me@far/~/d/f";
    for words in [
        &["cp", "me@far:d/f", "x"][..],
        &["cp", &file, "me@far:d/f"],
        &["sync", &place.here(""), "me@far:d/f"],
        &["ls", "me@far:d/f"],
        &["perf", "me@far:d/f"],
    ] {
        xdfs(words).fails(2, &[home]);
    }
    xdfs(["check", &file, "me@far:d/f"]).fails(4, &["no such file", home]);
    xdfs(["partial", "ls", "me@far:d/f"]).fails(4, &["no such file", home]);
    let other = xdfs(["cp", "C:x", &place.here("y")]).fails(4, &["no such file"]);
    assert!(!other.stderr.contains("machine 'C'"), "{}", other.stderr);
    // A directory may be called like that.
    std::fs::create_dir(place.here("odd:")).unwrap();
    let mut within = program();
    within.current_dir(place.here(""));
    Running::start(within.args(["cp", "f", "odd:/g"]))
        .wait()
        .ok();
    assert_content(place.here("odd:/g"), b"x");
    let server = Server::start(&place.root());
    std::fs::write(place.remote("f"), b"x").unwrap();
    xdfs(["cp", &server.url("/f"), &place.here("odd:/f")]).ok();
}
