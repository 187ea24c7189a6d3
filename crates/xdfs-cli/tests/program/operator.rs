//! What the administrator of a server does: checking settings before they are used.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

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
    // The server itself warns too, also of an export that isn't there.
    let text = text.replace("../root", "../later");
    let config = place.make_here("later.toml", text.as_bytes());
    let mut serve = program();
    serve.args(["serve", "--config", &config]);
    let running = Running::start(serve.stdin(Stdio::null()));
    running.wait_for_message("warning: anyone who can reach");
    running.wait_for_message("later");
}

/// Makes a certificate with its key that is valid in these days, counted from today.
fn certificate(place: &Place, days: std::ops::Range<i64>) {
    let day = Duration::from_secs(24 * 3600);
    let at = |days: i64| match u32::try_from(days) {
        Ok(days) => SystemTime::now() + day * days,
        Err(_) => SystemTime::now() - day * u32::try_from(-days).unwrap(),
    };
    let pair = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    parameters.not_before = at(days.start).into();
    parameters.not_after = at(days.end).into();
    let certificate = parameters.self_signed(&pair).unwrap();
    place.make_here("chain.pem", certificate.pem().as_bytes());
    let key = place.make_here("key.pem", pair.serialize_pem().as_bytes());
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn the_time_of_certificates_is_looked_at() {
    let place = Place::new();
    let text = "[certificate]\nchain = \"chain.pem\"\nkey = \"key.pem\"\n";
    let config = place.make_here("xdfs.toml", format!("{EXPORTS}{text}").as_bytes());
    certificate(&place, -100..100);
    let run = check(&config).ok();
    assert!(
        run.text().contains("the certificate ends on 20"),
        "{}",
        run.text()
    );
    assert!(!run.stderr.contains("certificate"), "{}", run.stderr);
    certificate(&place, -100..3);
    let run = check(&config).ok();
    assert!(
        run.stderr.contains("warning: ") && run.stderr.contains("the certificate ends on 20"),
        "{}",
        run.stderr
    );
    for (days, words) in [
        (-100..-1, "the certificate ended on 20"),
        (1..100, "the certificate isn't valid before 20"),
    ] {
        certificate(&place, days);
        check(&config).fails(2, &[words, "chain.pem"]);
        // Clients that know the key don't look at the time, so it serves.
        let mut serve = program();
        serve.env("XDFS_CONFIG_DIR", place.here("config"));
        serve.args(["serve", "--config", &config]);
        let running = Running::start(serve.stdin(Stdio::null()));
        running.wait_for_message(words);
        let address = running.wait_for_output("listening on 127");
        let address = address.lines().next().unwrap();
        let address = address.strip_prefix("listening on ").unwrap();
        let mut list = program();
        list.env("XDFS_CONFIG_DIR", place.here("config"));
        list.args(["ls", &format!("xdfs://{address}/data")]);
        Running::start(list.stdin(Stdio::null())).wait();
        running.wait_for_message("the server needs a new certificate");
        std::fs::remove_dir_all(place.here("config")).unwrap();
    }
}

#[test]
fn listeners_at_one_address_are_errors() {
    let place = Place::new();
    let path = place.here("s");
    for (listen, gridftp, is_right) in [
        ("\"127.0.0.1:4001\", \"127.0.0.1:4001\"", "", false),
        ("\"127.0.0.1:4001\", \"0.0.0.0:4001\"", "", false),
        ("\"127.0.0.1:4001\", \"127.0.0.2:4001\"", "", true),
        ("\"127.0.0.1:4001\", \"127.0.0.1:4002\"", "", true),
        ("\"127.0.0.1:0\", \"127.0.0.1:0\"", "", true),
        ("\"127.0.0.1:4001\", \"quic://127.0.0.1:4001\"", "", true),
        ("\"127.0.0.1:4001\", \"ptcp://127.0.0.1:4001\"", "", false),
        ("\"unix:s\", \"unix:SOCKET\"", "", false),
        ("\"127.0.0.1:4001\"", "127.0.0.1:4001", false),
        ("\"127.0.0.1:4001\"", "127.0.0.1:4002", true),
    ] {
        let listen = listen.replace("SOCKET", &path);
        let mut text = EXPORTS.replace("\"127.0.0.1:0\", \"unix:sock\"", &listen);
        if !gridftp.is_empty() {
            text += &format!("[gridftp]\nlisten = \"{gridftp}\"\n");
        }
        let config = place.make_here("xdfs.toml", text.as_bytes());
        let run = check(&config);
        match is_right {
            true => drop(run.ok()),
            false => drop(run.fails(2, &["another listener of these settings", "line"])),
        }
    }
}

#[test]
fn what_the_machine_does_not_have_is_named() {
    let place = Place::new();
    let with = |more: &str, listen: &str| {
        let text = EXPORTS.replace("\"127.0.0.1:0\", \"unix:sock\"", listen);
        place.make_here("xdfs.toml", format!("{more}{text}").as_bytes())
    };
    let here = "\"127.0.0.1:0\"";
    // Addresses for documentation (RFC 5737, RFC 3849): no machine has them.
    for listen in [
        "\"127.0.0.1:0\", \"192.0.2.1:2799\"",
        "\"192.0.2.1:0\"",
        "\"[2001:db8::1]:2799\"",
        "\"quic://192.0.2.1:2799\"",
    ] {
        let words = ["this machine doesn't have the address", "line 1", "0.0.0.0"];
        let run = check(&with("", listen)).fails(2, &words[..2]);
        assert!(run.stderr.contains(words[2]), "{}", run.stderr);
        assert!(run.stdout.is_empty(), "{}", run.text());
    }
    let gridftp = "\n[gridftp]\nlisten = \"192.0.2.1\"\n";
    let text = EXPORTS.replace("\"127.0.0.1:0\", \"unix:sock\"", here) + gridftp;
    let config = place.make_here("gridftp.toml", text.as_bytes());
    check(&config).fails(2, &["192.0.2.1", "doesn't have the address"]);
    for listen in [here, "\"0.0.0.0:2799\"", "\"127.9.8.7:2799\", \"unix:s\""] {
        let run = check(&with("", listen)).ok();
        assert!(!run.stderr.contains("address"), "{}", run.stderr);
    }
    // More than any machine has.
    let run = check(&with("memory_max = \"900P\"\n", here)).ok();
    let warned = &run.stderr;
    assert!(
        warned.contains("warning: memory_max is 1013309916158361600 bytes"),
        "{warned}"
    );
    let run = check(&with("sessions_max = 4000000000\n", here)).ok();
    let warned = &run.stderr;
    assert!(
        warned.contains("warning: sessions_max is 4000000000"),
        "{warned}"
    );
    let run = check(&with("memory_max = \"2M\"\nsessions_max = 3\n", here)).ok();
    assert!(!run.stderr.contains("_max"), "{}", run.stderr);
    for (value, words) in [
        ("0", "at least 1M"),
        ("-1", "number of bytes"),
        ("1.5", "number of bytes"),
        ("\"\"", "line 1"),
        ("\"-1\"", "line 1"),
        ("\"1 elephant\"", "line 1"),
        ("\"99999999999999999999G\"", "line 1"),
        ("[1]", "number of bytes"),
    ] {
        let run = check(&with(&format!("memory_max = {value}\n"), here));
        run.fails(2, &["line 1", words]);
    }
}

#[test]
fn rights_and_limits_are_shown_and_likely_slips_warned_of() {
    let place = Place::new();
    let inner = place.remote("inner");
    std::fs::create_dir(&inner).unwrap();
    let text = "listen = [\"127.0.0.1:0\"]\nfolder = \"server\"\nowner = \"owner\"\n\
         [limits]\nsessions_per_user_max = 3\nbytes_per_second_per_user_max = \"50M\"\n\
         [[export]]\nname = \"all\"\npath = \"../root\"\npublic = true\nquota_bytes = \"2G\"\n\
         quota_files = 7\nlargest_file = \"1M\"\n\
         [[export.grant]]\nuser = \"*\"\nrights = [\"create\"]\n\
         [[export]]\nname = \"in\"\npath = \"INNER\"\n\
         [[export.grant]]\nuser = \"alice\"\nrights = [\"read\"]\n\
         [[export.grant]]\nuser = \"bobb\"\nrights = \"all\"\n\
         [[export.grant]]\ngroup = \"staff\"\nrights = [\"list\"]\n\
         [groups]\nstaff = [\"alice\", \"carl\"]\n";
    let text = text.replace("INNER", &inner.to_string_lossy());
    let config = place.make_here("xdfs.toml", text.as_bytes());
    let mut add = program();
    add.args(["user", "--config", &config, "add", "alice"]);
    crate::support::run_with_input(&mut add, b"correct horse\n").ok();
    let run = check(&config).ok();
    let shown = run.text();
    for line in [
        "  anyone: read, list",
        "  every user: create",
        "  at most 2.15 GB in all, 7 files and directories, 1.05 MB a file",
        "  alice: read",
        "  bobb: read, list, create, write, delete",
        "  group staff (alice, carl): list",
    ] {
        assert!(shown.lines().any(|l| l == line), "{line}: {shown}");
    }
    assert!(shown.contains("limits of a user: 3 sessions"), "{shown}");
    let warned = &run.stderr;
    for words in [
        "the user 'bobb' of the export /in can't log in",
        "the user 'carl' of the group 'staff' can't log in",
        "the directory of /in is within that of /all, which is public",
    ] {
        assert!(warned.contains(words), "{words}: {warned}");
    }
    assert!(
        !warned.contains("'alice'") && !warned.contains("'*'"),
        "{warned}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_no_account_may_enter_is_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;
    if !xdfs_testkit::nobody::is_root() {
        return xdfs_testkit::skip::test("only root has [accounts]");
    }
    let place = Place::new();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let words = "none of the [accounts] may enter";
    for accounts in ["alice = \"nobody\"", "\"*\" = \"{user}\""] {
        let text = format!("{EXPORTS}[accounts]\n{accounts}\n");
        let config = place.make_here("xdfs.toml", text.as_bytes());
        for (above, own, is_warned) in [
            (0o755, 0o755, false),
            (0o700, 0o755, true),
            (0o711, 0o700, true),
            (0o711, 0o711, false),
        ] {
            mode(place.path(), above);
            mode(&place.root(), own);
            let run = check(&config).ok();
            assert_eq!(run.stderr.contains(words), is_warned, "{}", run.stderr);
        }
    }
}

#[test]
fn wrong_values_are_named_in_plain_words() {
    let place = Place::new();
    for (line, words) in [
        ("sessions_max = 0", "a whole number of at least 1 is needed"),
        (
            "grace_seconds = \"many\"",
            "a whole number is needed, not the text \"many\"",
        ),
        ("listen = \"127.0.0.1:1\"", "a list in brackets is needed"),
        ("read_only = 1", "true or false is needed"),
        ("certificate = 1", "a table is needed"),
    ] {
        let config = place.make_here("xdfs.toml", format!("{line}\n").as_bytes());
        check(&config).fails(2, &["line 1", words]);
    }
}
