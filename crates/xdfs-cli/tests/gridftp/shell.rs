//! `xdfs shell` at FTP and GridFTP servers: every command, what FTP can't do, and a terminal.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::terminal::Terminal;
use xdfs_testkit::wait;

use crate::ftps::{authority, password, url};
use crate::nodes::Cluster;
use crate::places::{vsftpd, xdfs};
use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree};
use crate::tools::Globus;

const INSECURE: &[&str] = &["--insecure"];

/// A shell at a directory of a server, and how to reach it.
#[derive(Clone, Copy)]
struct Shell<'a> {
    stage: &'a Stage,
    flags: &'a [&'a str],
    url: &'a str,
}

impl<'a> Shell<'a> {
    /// One without protection.
    fn clear(stage: &'a Stage, url: &'a str) -> Self {
        let flags = INSECURE;
        Self { stage, flags, url }
    }
}

/// Runs a script in the client's directory. Returns whether it succeeded, and what was printed.
#[track_caller]
fn script(shell: Shell<'_>, flags: &[&str], lines: &str) -> (bool, String) {
    let Shell { stage, url, .. } = shell;
    let input = stage.beside("script");
    fs::write(&input, lines).unwrap();
    let mut program = xdfs(stage, &["shell"]);
    program.args(shell.flags).args(flags).arg(url);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" < \"$0\""]).arg(&input);
    command.arg(program.get_program()).args(program.get_args());
    command.current_dir(stage.here(""));
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut running = Guard::spawn(&mut command).unwrap();
    let status = running.wait(PATIENCE).unwrap();
    let text = running.output().join("\n");
    let Some(status) = status else {
        panic!("the shell did not end: {text}");
    };
    (status.success(), text)
}

#[track_caller]
fn succeeds(shell: Shell<'_>, lines: &str) -> String {
    let (succeeded, text) = script(shell, &[], lines);
    assert!(succeeded, "{text}");
    text
}

/// Each of these lines fails with these words, and the next one is carried out.
#[track_caller]
fn goes_on(shell: Shell<'_>, failing: &[(&str, &str)]) {
    let lines: Vec<_> = failing.iter().map(|(line, _)| *line).collect();
    let lines = format!("{}\nlpwd\n", lines.join("\n"));
    let (succeeded, text) = script(shell, &["--keep-going"], &lines);
    assert!(!succeeded && text.contains("/here"), "{text}");
    let faults = text.lines().filter(|line| line.contains("error: "));
    assert_eq!(faults.count(), failing.len(), "{text}");
    for (line, words) in failing {
        assert!(text.contains(words), "{line}: {words}: {text}");
    }
}

/// What FTP has no command for.
const LACKING: &[(&str, &str)] = &[
    ("df", "FTP servers can't do this"),
    ("ln f hard", "FTP servers can't do this"),
    ("ln -s f soft", "FTP servers can't do this"),
    ("truncate -s 1 f", "FTP servers can't do this"),
    ("chown 0:0 f", "FTP servers can't do this"),
    ("cat gone", "gone"),
    ("cd gone", "gone"),
    ("cd f", "not a directory"),
    ("nonsense", "no such command"),
];

/// What works at every server, of which `root` is served at `url`.
#[track_caller]
fn files_work(shell: Shell<'_>, root: &Path) {
    let stage = shell.stage;
    let content = Stage::make(&stage.here("file"), 70_001);
    let lines = "mkdir -p dir/sub\nput file\nput file dir/other\ncd dir\nstat other\nsum other\n\
                 mv other third\ncat third\nget third back\nget -f ../file .\ncp :third copied\n\
                 cp copied :sub/\nput -n 2 -f ../here/file sub/copied\nrm third\ncd -\nrm file\n\
                 rm -r dir/sub\nrm -d dir\npwd\nlpwd\n";
    let text = succeeds(shell, lines);
    assert!(text.contains("/here"), "{text}");
    for name in ["back", "copied"] {
        assert_bytes(&stage.here(name), &content);
        fs::remove_file(stage.here(name)).unwrap();
    }
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    fs::write(root.join("f"), "content").unwrap();
    goes_on(shell, LACKING);
    fs::remove_file(root.join("f")).unwrap();
}

/// What needs listings, and commands that most servers have.
#[track_caller]
fn trees_work(shell: Shell<'_>, root: &Path) {
    let stage = shell.stage;
    Stage::make(&stage.here("tree/a b/leaf"), 1000);
    Stage::make(&stage.here("tree/large"), 9_000_001);
    for name in ["1.dat", "2.dat"] {
        Stage::make(&stage.here(name), 10);
    }
    let lines = "put *.dat\nls\nls *.dat\nfind . -name '1*' -type f\ndu -s .\n\
                 chmod 640 1.dat\ntouch -d '2026-01-31 12:00:00Z' 1.dat\nls -l 1.dat\n\
                 put -r tree\nget -r tree tree-back\nsync tree :synced\ncheck tree :synced\n\
                 rm synced/large\nsync --delete tree :synced\nsync :synced synced-back\n\
                 cd 'tree/a b'\nls ..\nget *\nfind\nlcd tree\nget -f ../large .\n";
    let text = succeeds(shell, lines);
    for words in ["1.dat", "2.dat", "large", "rw-r-----", "Jan 31  2026"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    for copy in [
        stage.here("tree-back"),
        stage.here("synced-back"),
        root.join("synced"),
    ] {
        assert_same_tree(&stage.here("tree"), &copy);
    }
    assert!(stage.here("leaf").exists());
}

#[test]
fn every_command_works_at_xdfs() {
    let stage = Stage::open(301, &[]);
    let (url, top) = (stage.url("/"), stage.url("//"));
    files_work(Shell::clear(&stage, &url), &stage.root(""));
    trees_work(Shell::clear(&stage, &url), &stage.root(""));
    // There the root is what is served.
    let lines = "ls\ncd tree\npwd\ncd ..\npwd\ncd /\npwd\n";
    let text = succeeds(Shell::clear(&stage, &top), lines);
    assert!(text.ends_with("//tree\n//\n/"), "{text}");
}

#[test]
fn every_command_works_at_globus() {
    let stage = Stage::open(302, &[]);
    let Some(globus) = Globus::start() else {
        return;
    };
    let root = stage.root("");
    let url = format!("ftp://{}/{}", globus.address, root.display());
    let shell = Shell::clear(&stage, &url);
    files_work(shell, &root);
    trees_work(shell, &root);
    // From the root of the server, and back.
    let there = format!("/{}", text(&root));
    let lines = format!("pwd\ncd tree\nls ..\ncd {there}\npwd\nls //etc/passwd\n");
    let shown = succeeds(shell, &lines);
    assert!(
        shown.contains(&there) && shown.contains("//etc/passwd"),
        "{shown}"
    );
}

fn text(path: &Path) -> String {
    path.display().to_string().trim_end_matches('/').to_owned()
}

#[test]
fn commands_work_at_vsftpd() {
    let stage = Stage::open(303, &[]);
    let Some((_server, address)) = vsftpd(&stage, "") else {
        return;
    };
    let root = stage.beside("anonymous/pub");
    let url = format!("ftp://{address}/pub");
    let shell = Shell::clear(&stage, &url);
    files_work(shell, &root);
    Stage::make(&stage.here("tree/a b/leaf"), 1000);
    let lines = "put -r tree\nls *\nfind . -name 'l*'\ndu -s .\nsync tree :synced\n\
                 check tree :synced\nsync :synced synced-back\nget -r tree tree-back\n\
                 cd 'tree/a b'\nls ..\nget *\n";
    let shown = succeeds(shell, lines);
    assert!(shown.contains("leaf"), "{shown}");
    for copy in ["tree-back", "synced-back"] {
        assert_same_tree(&stage.here("tree"), &stage.here(copy));
    }
}

#[test]
fn every_command_works_with_tls() {
    let stage = Stage::with_users(305, "[gridftp]\ntls = \"required\"");
    let (authority, password) = (authority(&stage), password(&stage));
    let (url, root) = (url(&stage, ""), stage.root("alice"));
    let shell = Shell {
        stage: &stage,
        flags: &["--ca", &authority, "--password-file", &password],
        url: &url,
    };
    files_work(shell, &root);
    trees_work(shell, &root);
}

#[cfg(feature = "gsi")]
#[test]
fn every_command_works_with_gsi() {
    if !crate::grid::has_tools() {
        return xdfs_testkit::skip::test("the tools of Globus are not installed");
    }
    let (stage, _grid) = Stage::with_gsi(306, "", "");
    let (url, root) = (stage.gsi_url("/alice"), stage.root("alice"));
    let shell = Shell {
        stage: &stage,
        flags: &[],
        url: &url,
    };
    files_work(shell, &root);
    trees_work(shell, &root);
}

/// The flags of stripes are those of the program.
#[test]
fn a_shell_stripes_files() {
    let cluster = Cluster::open(307, 2, "");
    let stage = &cluster.stage;
    let content = Stage::make(&stage.here("tree/big"), 5_000_000);
    let url = stage.url("//data");
    let striped = "--stripe --stripe-nodes 127.0.0.0/30";
    let lines = format!(
        "put {striped} tree/big\nget {striped} big back\ncp {striped} :big copied\n\
         sync {striped} tree :tree\nsync {striped} :tree tree-back\n"
    );
    succeeds(Shell::clear(stage, &url), &lines);
    for name in ["back", "copied", "tree-back/big"] {
        assert_bytes(&stage.here(name), &content);
    }
    cluster.assert_requests("=store ", &[2, 2]);
    cluster.assert_requests("=send ", &[3, 3]);
}

/// At a terminal: completion at the server, a server that goes away and comes back, and Ctrl-C.
#[test]
fn a_shell_at_a_terminal() {
    let mut stage = Stage::open(304, &[]);
    Stage::make(&stage.root("runs of may/a file"), 40);
    Stage::make(&stage.root("large"), 30_000_000);
    let mut command = xdfs(&stage, &["shell", "--insecure", &stage.url("/")]);
    command.env("TERM", "xterm").current_dir(stage.here(""));
    let mut terminal = Terminal::start(&command).unwrap();
    let mut at = 0;
    let mut sees = |terminal: &Terminal, words: &str| match terminal.wait_for(words, at, PATIENCE) {
        Some(next) => at = next,
        None => panic!("'{words}' was not shown: {:?}", terminal.text()),
    };
    sees(&terminal, ":/> ");
    terminal.send(b"cd ru\t\r").unwrap();
    sees(&terminal, ":/runs of may> ");
    terminal.send(b"get a\t.\r").unwrap();
    sees(&terminal, "a\\ file");
    sees(&terminal, ":/runs of may> ");
    assert!(wait::until(PATIENCE, || stage.here("a file").exists()));
    // A copy is stopped, and the shell goes on.
    terminal.send(b"get --limit-rate 1M ../large\r").unwrap();
    let has_part = || {
        let mut entries = fs::read_dir(stage.here("")).unwrap();
        entries.any(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with('.')
        })
    };
    assert!(wait::until(PATIENCE, has_part), "{:?}", terminal.text());
    terminal.send(b"\x03").unwrap();
    sees(&terminal, ":/runs of may> ");
    assert!(!stage.here("large").exists());
    // The server is another one meanwhile.
    stage.kill_and_restart();
    std::thread::sleep(Duration::from_millis(1200));
    terminal.send(b"stat 'a file'\r").unwrap();
    sees(&terminal, "Size: 40");
    sees(&terminal, ":/runs of may> ");
    terminal.send(b"\x04").unwrap();
    let status = terminal.wait(PATIENCE);
    assert!(
        status.is_some_and(|status| status.success()),
        "{:?}",
        terminal.text()
    );
}
