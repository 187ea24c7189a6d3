//! What the administrator of a server does: checking settings before they are used.

use std::path::Path;
use std::process::Stdio;

use crate::support::{Place, Run, Running, names, program, xdfs};

fn check(config: &str) -> Run {
    xdfs(["serve", "--check-config", "--config", config])
}

/// Everything beneath a directory, with lengths.
fn everything(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(dir) {
        let path = dir.join(&name);
        let meta = std::fs::symlink_metadata(&path).unwrap();
        found.push(format!("{} {}", path.display(), meta.len()));
        if meta.is_dir() {
            found.extend(everything(&path));
        }
    }
    found
}

const EXPORTS: &str = "listen = [\"127.0.0.1:0\", \"unix:sock\"]\nfolder = \"server\"\n\
     audit = \"audit.jsonl\"\n\
     [[export]]\nname = \"data\"\npath = \"../root\"\n\
     [[export.grant]]\nuser = \"*\"\nrights = [\"read\", \"list\"]\n";

/// Relative paths, that of an export too, start at the directory of the file.
#[test]
fn valid_settings_are_shown_and_nothing_is_made() {
    let place = Place::new();
    let config = place.make_here("xdfs.toml", EXPORTS.as_bytes());
    let before = everything(place.path());
    let run = check(&config).ok();
    let root = place.root().canonicalize().unwrap();
    for line in [
        "would listen on 127.0.0.1:0".to_owned(),
        format!("would listen on unix:{}", place.here("sock")),
        format!("would serve /data from {}", root.display()),
        format!("would make a key in {}", place.here("server")),
        "users with a password: nobody".to_owned(),
        "the settings are valid".to_owned(),
    ] {
        assert!(
            run.text().lines().any(|l| l == line),
            "{line}: {}",
            run.text()
        );
    }
    assert_eq!(everything(place.path()), before);
    // The server starts with the same file, from another directory, and serves that directory.
    std::fs::write(place.remote("file"), b"abc").unwrap();
    let own = place.here("config");
    let mut serve = program();
    serve.env("XDFS_CONFIG_DIR", &own);
    serve.args(["serve", "--config", &config]).current_dir("/");
    let running = Running::start(serve.stdin(Stdio::null()));
    running.wait_for_output("serving /data from ");
    let line = running.wait_for_output("fingerprint ");
    let fingerprint = line
        .lines()
        .find(|l| l.starts_with("fingerprint "))
        .unwrap();
    // Now it has a key, and the check can run beside it.
    let run = check(&config).ok();
    assert!(run.text().contains(fingerprint), "{} {line}", run.text());
    let address = line.lines().next().unwrap();
    let address = address.strip_prefix("listening on ").unwrap();
    let mut list = program();
    list.env("XDFS_CONFIG_DIR", &own)
        .args(["ls", &format!("xdfs://{address}/data")]);
    let listed = Running::start(list.stdin(Stdio::null())).wait().ok();
    assert_eq!(listed.text(), "file\n");
}

#[test]
fn users_are_counted() {
    let place = Place::new();
    let config = place.make_here("xdfs.toml", EXPORTS.as_bytes());
    let mut add = program();
    add.args(["user", "--config", &config, "add", "alice"]);
    crate::support::run_with_input(&mut add, b"correct horse\n").ok();
    let key = xdfs(["keygen", "--file", &place.here("key")]).ok().text();
    std::fs::create_dir(place.here("server/keys")).unwrap();
    std::fs::write(place.here("server/keys/bob"), &key).unwrap();
    let text = check(&config).ok().text();
    assert!(text.contains("users with a password: alice\n"), "{text}");
    assert!(text.contains("bob (1 key)"), "{text}");
}

/// All at once, each with its line, and the valid names where a name is wrong.
#[test]
fn every_error_is_named_with_its_line() {
    let place = Place::new();
    let config = place.make_here(
        "syntax.toml",
        b"rot = \"x\"\nread_only = \"yes\"\n\n[[export]]\nname = \"a\"\nway = \"/\"\n\
          [[export]]\nname = \"b\"\npath = 5\n",
    );
    let words = [
        "line 1",
        "rot",
        "read_only",
        "line 2",
        "line 6",
        "way",
        "line 9",
    ];
    let run = check(&config).fails(2, &words);
    assert!(run.stderr.contains("4 errors"), "{}", run.stderr);
    assert!(run.stdout.is_empty());
    let config = place.make_here(
        "meaning.toml",
        b"listen = [\"127.0.0.1:1\", \"1:2:3\", \"unix:none/s\"]\naudit = \"none/audit\"\n\
          folder = \"server\"\n\
          [certificate]\nchain = \"none.pem\"\nkey = \"none.key\"\n\
          [[export]]\nname = \"a\"\npath = \"none\"\n\
          [[export.grant]]\nuser = \"*\"\nrights = [\"read\"]\n\
          [[export]]\nname = \"b\"\npath = \"../root\"\n\
          [[issuers]]\nissuer = \"x\"\naudience = []\nprofile = \"plain\"\n",
    );
    let words = [
        "meaning.toml line 1)",
        "1:2:3",
        "none/s",
        "line 2)",
        "none/audit",
        "line 4)",
        "none.pem",
        "line 7)",
        "here/none",
        "line 13)",
        "nobody may use it",
        "line 16)",
    ];
    check(&config).fails(2, &words);
    assert!(!place.path().join("here/server").exists());
    let config = place.make_here(
        "right.toml",
        b"[[export]]\nname = \"a\"\npath = \"/\"\n\
        [[export.grant]]\nuser = \"*\"\nrights = [\"reed\"]\n",
    );
    check(&config).fails(2, &["line 6", "reed", "read, list, create, write, delete"]);
    xdfs(["serve", "--check-config", "--config", &place.here("none")]).fails(2, &["none"]);
    xdfs(["serve", "--check-config", "--root", &place.here("none")]).fails(2, &["none"]);
}

#[test]
fn a_list_that_lets_nobody_in_is_an_error() {
    let place = Place::new();
    let config = place.make_here("xdfs.toml", EXPORTS.as_bytes());
    std::fs::create_dir_all(place.here("server/keys/carol")).unwrap();
    std::fs::write(place.here("server/users"), "nonsense\n").unwrap();
    check(&config).fails(2, &["keys/carol", "server/users"]);
}

#[test]
fn dangerous_settings_are_warned_of() {
    let place = Place::new();
    let text = "listen = [\"127.0.0.1:0\"]\nfolder = \"server\"\n\
         [[export]]\nname = \"drop\"\npath = \"../root\"\npublic = true\n\
         anonymous = [\"create\"]\n";
    let config = place.make_here("xdfs.toml", text.as_bytes());
    let warned = check(&config).ok().stderr;
    assert!(warned.contains("warning: anyone who can reach"), "{warned}");
    assert!(!warned.contains("chmod"), "{warned}");
    let quiet = text.replace("\"create\"", "\"read\"");
    let config = place.make_here("quiet.toml", quiet.as_bytes());
    let warned = check(&config).ok().stderr;
    assert!(!warned.contains("anyone"), "{warned}");
    {
        use std::os::unix::fs::PermissionsExt as _;
        let all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&config, all).unwrap();
        let warned = check(&config).ok().stderr;
        assert!(warned.contains("chmod go-w"), "{warned}");
    }
    // The server itself warns too, also of an export that isn't there.
    let text = text.replace("../root", "../later");
    let config = place.make_here("later.toml", text.as_bytes());
    let mut serve = program();
    serve.args(["serve", "--config", &config]);
    let running = Running::start(serve.stdin(Stdio::null()));
    running.wait_for_message("warning: anyone who can reach");
    running.wait_for_message("later");
}
