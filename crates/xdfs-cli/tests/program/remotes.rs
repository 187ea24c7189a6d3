//! Servers with names in the client's configuration, and the settings that belong to them.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Place, Run, Server, assert_content, content, names, program, run_with_input};

/// A fingerprint that no server has.
const OTHER: &str = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A server with a user `alice` who has a password, and `owner` who has the key `here/key`. The
/// client's folder is `here/config`: its own key lets nobody in.
struct Lab {
    place: Place,
    server: Server,
}

impl Lab {
    fn new() -> Self {
        let place = Place::new();
        let of_server = |args: &[&str], input: &[u8]| {
            let mut command = program();
            command
                .env("XDFS_CONFIG_DIR", place.here("theirs"))
                .args(args);
            run_with_input(&mut command, input).ok()
        };
        let key = of_server(&["keygen", "--file", &place.here("key")], b"").text();
        of_server(&["user", "add", "alice"], b"correct horse\n");
        place.make_here("theirs/server/authorized_keys", key.as_bytes());
        let settings = format!(
            "listen = [\"127.0.0.1:0\"]\nfolder = \"theirs/server\"\nowner = \"owner\"\n\
             [[export]]\nname = \"data\"\npath = \"{root}\"\n\
             [[export.grant]]\nuser = \"*\"\nrights = [\"read\", \"list\", \"create\", \"write\", \
             \"delete\"]\n",
            root = place.root().display(),
        );
        let file = place.make_here("server.toml", settings.as_bytes());
        let server = Server::start_with(&place.root(), &["--config", &file]);
        place.make_here("password", b"correct horse\n");
        let lab = Self { place, server };
        std::fs::create_dir(lab.place.here("config")).unwrap();
        lab
    }

    /// A `[remote.NAME]` with the URL of this server for a user, and more settings.
    fn remote(&self, name: &str, user: &str, settings: &str) -> String {
        let url = self
            .server
            .url("/data")
            .replace("xdfs://", &format!("xdfs://{user}"));
        format!("[remote.{name}]\nurl = \"{url}\"\n{settings}\n")
    }

    fn configure(&self, text: &str) {
        self.place.make_here("config/config.toml", text.as_bytes());
    }

    fn run_with(&self, args: &[&str], input: &[u8]) -> Run {
        let mut command = program();
        command
            .env("XDFS_CONFIG_DIR", self.place.here("config"))
            .env("HOME", self.place.here(""))
            .current_dir(self.place.here(""))
            .args(args);
        run_with_input(&mut command, input)
    }

    fn run(&self, args: &[&str]) -> Run {
        self.run_with(args, b"")
    }
}

#[test]
fn a_name_stands_for_a_url_in_every_command() {
    let lab = Lab::new();
    lab.configure(&lab.remote("lab", "", "key = \"../key\""));
    let shown = format!("lab {}\n", lab.server.url("/data"));
    assert_eq!(lab.run(&["remotes"]).ok().text(), shown);
    let bytes = content(3, 100_000);
    let file = lab.place.make_here("f", &bytes);
    // Nobody is let in without the key that only the settings name.
    lab.run(&["ls", &lab.server.url("/data")])
        .fails(16, &["refused the login"]);
    lab.run(&["cp", &file, "lab:"]).ok();
    assert_content(lab.place.remote("f"), &bytes);
    lab.run(&["mkdir", "-p", "lab:runs/a", "lab:/data/runs/b c"])
        .ok();
    assert_eq!(names(lab.place.remote("runs")), ["a", "b c"]);
    lab.run(&["cp", "lab:f", "back"]).ok();
    assert_content(lab.place.here("back"), &bytes);
    lab.run(&["cp", "-r", "lab:runs", "fetched"]).ok();
    assert_eq!(names(lab.place.here("fetched")), ["a", "b c"]);
    lab.run(&["sync", "fetched", "lab:copy"]).ok();
    assert_eq!(names(lab.place.remote("copy")), ["a", "b c"]);
    assert_eq!(lab.run(&["ls", "lab:copy"]).ok().text(), "a\nb c\n");
    let found = lab.run(&["find", "lab:runs", "-name", "b*"]).ok().text();
    assert_eq!(found, "/data/runs/b c\n");
    lab.run(&["check", "f", "lab:f"]).ok();
    let sums = lab.run(&["sum", "lab:f", "f"]).ok().text();
    let sums: Vec<&str> = sums
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(sums[0], sums[1]);
    lab.run(&["touch", "-r", "lab:f", "lab:g"]).ok();
    lab.run(&["mv", "lab:g", "lab:h"]).ok();
    lab.run(&["ln", "-s", "lab:f", "lab:l"])
        .fails(2, &["not a URL"]);
    assert_eq!(lab.run(&["cat", "--length", "0", "lab:h"]).ok().text(), "");
    lab.run(&["partial", "ls", "lab:"]).ok();
    let who = lab.run(&["whoami", "lab:"]).ok().text();
    assert!(who.starts_with("owner\n"), "{who}");
    lab.run(&["whoami", "lab:f"])
        .fails(2, &["names a file", "hint: name the server only"]);
    lab.run(&["perf", "--bytes", "1M", "lab:"]).ok();
    let script = b"cd runs\nput f z\nls\nget lab:runs/z here\ncat lab:/data/f\n";
    let shell = lab.run_with(&["shell", "lab:"], script).ok();
    assert!(shell.stdout.starts_with(b"a\nb c\nz\n"), "{shell:?}");
    assert!(shell.stdout.ends_with(&bytes));
    assert_content(lab.place.here("here"), &bytes);
    lab.run(&["rm", "-r", "lab:runs", "lab:copy"]).ok();
    assert_eq!(names(lab.place.root()), ["f", "h"]);
    // A file here that is called so, and a name that no server has.
    lab.place.make_here("lab:x", b"local");
    lab.run(&["cp", "lab:x", "y"]).fails(4, &["/data/x"]);
    lab.run(&["cp", "./lab:x", "lab:"]).ok();
    assert_content(lab.place.remote("lab:x"), b"local");
    lab.run(&["ls", "lba:x"])
        .fails(2, &["no remote is named 'lba'; there are: lab"]);
    lab.run(&["cp", "lba:x", "y"])
        .fails(2, &["no remote is named 'lba'"]);
    lab.run(&["cp", "lba:/x", "y"])
        .fails(2, &["xdfs://lba/x", "no remote is named 'lba'"]);
}

#[test]
fn names_on_the_server_are_matched_as_they_are() {
    let lab = Lab::new();
    lab.configure(&lab.remote("lab", "", "key = \"../key\""));
    let odd = std::ffi::OsStr::from_bytes(b"d/x%41\xff.dat");
    std::fs::create_dir(lab.place.remote("d")).unwrap();
    for name in ["d/a.dat", "d/b.dat", "d/c.txt", "d/e\\?pin=.dat"] {
        std::fs::write(lab.place.remote(name), name).unwrap();
    }
    std::fs::write(lab.place.root().join(odd), "odd").unwrap();
    std::fs::create_dir(lab.place.here("got")).unwrap();
    lab.run(&["cp", "lab:d/*.dat", "got"]).ok();
    assert_eq!(
        std::fs::read_dir(lab.place.here("got")).unwrap().count(),
        4,
        "{:?}",
        names(lab.place.here("got"))
    );
    lab.run(&["cp", "lab:/data/d/?.txt", "got"]).ok();
    lab.run(&["cp", "-f", "lab:d/e\\*", "got"]).ok();
    lab.run(&["cp", "lab:*.none", "got"])
        .fails(4, &["no name matches"]);
}

#[test]
fn each_credential_is_the_one_of_its_remote() {
    let lab = Lab::new();
    lab.configure(
        &[
            lab.remote("by-key", "", "key = \"~/key\""),
            lab.remote("by-password", "alice@", "password_file = \"../password\""),
            lab.remote("plain", "alice@", ""),
            lab.remote("nobody", "", "anonymous = true"),
        ]
        .concat(),
    );
    let who = |remote: &str| {
        let text = lab.run(&["whoami", remote]).ok().text();
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(
        (&*who("by-key:"), &*who("by-password:")),
        ("owner", "alice")
    );
    lab.run(&["whoami", "nobody:"])
        .fails(16, &["the server takes none of what there is"]);
    // Beside each other, on one server and for one user.
    let file = lab.place.make_here("f", b"1");
    lab.run(&["cp", &file, "by-key:"]).ok();
    for words in [
        &["ls", "by-password:", "plain:"][..],
        &["cp", "by-password:f", "plain:g", "."],
    ] {
        lab.run(words)
            .fails(16, &["refused the login of 'alice' (key"]);
    }
    lab.run(&["check", "by-password:f", "by-key:f"]).ok();
    lab.run(&["mv", "by-password:f", "by-key:g"])
        .fails(2, &["different settings"]);
    std::fs::write(lab.place.remote("g"), "2").unwrap();
    std::fs::create_dir(lab.place.here("got")).unwrap();
    lab.run(&["cp", "by-password:f", "by-key:g", "got"]).ok();
    assert_eq!(names(lab.place.here("got")), ["f", "g"]);
    // In a shell the settings are those of each place too.
    let script = b"check by-password:f by-key:f\nls by-key:\nls plain:\n";
    let shell = lab.run_with(&["shell", "by-password:"], script);
    let shell = shell.fails(16, &["refused the login of 'alice' (key"]);
    assert_eq!(shell.text(), "f\ng\n");
    // A flag is instead of the credential of the remote, and not beside it.
    lab.run(&["whoami", "--password-file", "password", "plain:"])
        .ok();
    let run = lab.run(&["whoami", "--key", "key", "by-password:"]);
    run.fails(16, &["refused the login of 'alice' (key"]);
    lab.run(&["whoami", "--insecure", "by-key:"])
        .fails(2, &["protect its sessions"]);
}

#[test]
fn a_remote_trusts_whom_its_settings_say() {
    let lab = Lab::new();
    let right = lab
        .server
        .line_with("fingerprint ")
        .replace("fingerprint ", "");
    let settings = |more: &str| format!("key = \"../key\"\n{more}");
    lab.configure(
        &[
            lab.remote(
                "right",
                "",
                &settings(&format!("pin = \"{}\"", right.trim())),
            ),
            lab.remote("wrong", "", &settings(&format!("pin = \"{OTHER}\""))),
            lab.remote("known", "", &settings("known_only = true")),
        ]
        .concat(),
    );
    lab.run(&["ls", "wrong:"]).fails(17, &["fingerprint"]);
    lab.run(&["ls", "known:"]).fails(17, &["known"]);
    let run = lab.run(&["ls", "right:"]).ok();
    assert!(!run.stderr.contains("trusted from now on"), "{run:?}");
    lab.run(&["ls", "right:", "wrong:"])
        .fails(17, &["fingerprint"]);
    lab.run(&["ls", "--pin", right.trim(), "wrong:"]).ok();
    lab.run(&["ls", "--pin", OTHER, "right:"])
        .fails(17, &["fingerprint"]);
    // The server takes nothing in the clear.
    lab.configure(&lab.remote("clear", "", &settings("protect = \"clear\"")));
    lab.run(&["ls", "clear:"]).fails(17, &["clear"]);
}

#[test]
fn options_of_sessions_and_copies_are_those_of_the_file() {
    let lab = Lab::new();
    let options = "key = \"../key\"\nchannels = 3\nblock_size = \"64K\"\nwindow = 65536";
    lab.configure(&format!(
        "[defaults]\nchannels = 2\n{}{}{}",
        lab.remote("lab", "", options),
        lab.remote("two", "", "key = \"../key\"\nretries = 7"),
        lab.remote(
            "slow",
            "",
            "key = \"../key\"\nlimit_rate = \"1M\"\nretries = 0"
        ),
    ));
    let file = lab.place.make_here("f", &content(1, 3 << 20));
    let count = |words: &[&str]| {
        let words = [&["cp", "-f", "--ignore-times", "--json"], words].concat();
        lab.run(&words).ok().result()["channels"].as_u64().unwrap()
    };
    assert_eq!(count(&[&file, "lab:"]), 3);
    assert_eq!(count(&[&file, "two:"]), 2);
    assert_eq!(count(&["-n", "1", &file, "lab:"]), 1);
    let seconds = |words: &[&str]| {
        let words = [&["cp", "-f", "--ignore-times", "--json"], words].concat();
        lab.run(&words).ok().result()["seconds"].as_f64().unwrap()
    };
    // 3 MiB at 1 MB/s: it can't take less.
    assert!(seconds(&[&file, "slow:"]) > 1.0);
    std::fs::write(lab.place.remote("g"), "2").unwrap();
    std::fs::create_dir(lab.place.here("got")).unwrap();
    lab.run(&["cp", "two:f", "slow:g", "got"])
        .fails(2, &["different numbers of retries"]);
    lab.run(&["cp", "--retries", "1", "two:g", "lab:f", "got"])
        .ok();
}

#[test]
fn a_file_that_is_unsafe_or_wrong_is_refused_before_anything_is_sent() {
    let lab = Lab::new();
    let good = lab.remote("lab", "", "key = \"../key\"");
    lab.configure(&good);
    lab.run(&["ls", "lab:"]).ok();
    let file = lab.place.here("config/config.toml");
    let mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, permissions).unwrap();
    };
    for bits in [0o620, 0o602] {
        mode(bits);
        let url = lab.server.url("/data");
        for place in ["lab:", &url] {
            lab.run(&["ls", place])
                .fails(5, &["others than its owner", "chmod go-w"]);
        }
    }
    mode(0o644);
    for (text, words) in [
        (format!("{good}kye = 1\n"), "line 4: unknown setting `kye`"),
        (format!("{good}agent = 3\n"), "line 4: "),
        (
            good.replace("lab", "l"),
            "line 1: 'l' can't be the name of a remote",
        ),
        (format!("{good}[broken\n"), "line 4: "),
    ] {
        lab.configure(&text);
        for command in ["ls", "remotes", "shell"] {
            let words = [words, "config.toml", "`xdfs remotes --help`"];
            let args = [command, "lab:"];
            let args = &args[..if command == "remotes" { 1 } else { 2 }];
            lab.run(args).fails(2, &words);
        }
    }
    let run = lab.run(&["cp", "--json", "f", "lab:"]);
    assert_eq!(run.json()[0]["type"], "error");
    lab.place.make_here("config/config.toml", b"\n# \xff\n");
    lab.run(&["remotes"])
        .fails(2, &["line 2: it isn't UTF-8", "`xdfs remotes --help`"]);
    // What the file names is missed when it is needed.
    lab.configure(&lab.remote("lab", "alice@", "password_file = \"none\""));
    lab.run(&["remotes"]).ok();
    lab.run(&["ls", "lab:"]).fails(4, &["config/none"]);
    std::fs::remove_file(&file).unwrap();
    let none = lab.run(&["remotes"]).ok();
    assert!(none.stdout.is_empty() && none.stderr.contains("no server has a name"));
    std::fs::create_dir(&file).unwrap();
    lab.run(&["ls", "lab:"]).fails(6, &["config.toml"]);
}
