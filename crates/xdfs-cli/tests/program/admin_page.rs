//! The commands of docs/admin.md, run as they stand there.
//!
//! Directories and names of machines are replaced, `sudo` keeps the user, and `systemctl` does what
//! the unit of contrib/ says. Blocks that only root can run are not marked as `sh`.

use std::process::{Command, Stdio};

use crate::support::{Place, Running, program, xdfs};

const PAGE: &str = include_str!("../../../../docs/admin.md");
const UNIT: &str = include_str!("../../../../contrib/xdfs.service");

const PRELUDE: &str = r#"
set -eu
sudo() { shift 2; (XDFS_CONFIG_DIR=$STATE; "$@"); }
xdfs() {
    case $1 in
        user) echo 'correct horse' | command "$XDFS" "$@" ;;
        *) command "$XDFS" "$@" ;;
    esac
}
start() {
    : >log
    (XDFS_CONFIG_DIR=$STATE; exec EXEC_START) >log 2>&1 </dev/null &
    MAINPID=$!
    until grep -q '^listening' log; do kill -0 $MAINPID; sleep 0.05; done
}
stop() { kill $MAINPID; wait $MAINPID; }
reload() { (XDFS_CONFIG_DIR=$STATE; EXEC_RELOAD); }
systemctl() {
    case $1 in
        enable) start ;;
        reload) reload ;;
        restart) stop; start ;;
        *) exit 1 ;;
    esac
}
trap 'test -z "${MAINPID-}" || kill $MAINPID || true' EXIT
"#;

/// The fenced blocks in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let parts = PAGE.split(&fence).skip(1);
    let parts = parts.map(|part| part.split_once("```").unwrap().0);
    parts.collect()
}

/// The commands of the unit that begin so, one after the other.
fn of_unit(start: &str) -> String {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix(start));
    lines.collect::<Vec<_>>().join(" && ")
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    let place = Place::new();
    let folder = place.here("admin");
    for name in ["etc", "state", "data"] {
        std::fs::create_dir_all(format!("{folder}/{name}")).unwrap();
    }
    let key = format!("{folder}/bob");
    xdfs(["keygen", "--file", &key]).ok();
    std::fs::write(format!("{folder}/password"), "correct horse\n").unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let here = |text: &str| {
        text.replace("/etc/xdfs", &format!("{folder}/etc"))
            .replace("/var/lib/xdfs", &format!("{folder}/state"))
            .replace("/srv/data", &format!("{folder}/data"))
            .replace("/usr/local/bin/xdfs", "\"$XDFS\"")
            .replace("0.0.0.0:2799", &address)
            .replace("server.example", &address)
    };
    let settings = here(blocks("toml")[0]);
    std::fs::write(format!("{folder}/etc/xdfs.toml"), settings).unwrap();
    let prelude = PRELUDE
        .replace("EXEC_START", &of_unit("ExecStart="))
        .replace("EXEC_RELOAD", &of_unit("ExecReload="));
    let commands = blocks("sh");
    assert!(commands.len() >= 9, "{commands:?}");
    let script = here(&[&prelude, "set -x\n", &commands.concat()].concat());
    let own = program();
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(&folder);
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    // Its server has a key of its own, and the port may have had another.
    shell.env("XDFS_CONFIG_DIR", format!("{folder}/client"));
    shell.env("XDFS", own.get_program());
    shell.env("STATE", format!("{folder}/state"));
    let run = Running::start(shell.stdin(Stdio::null())).wait();
    let log = std::fs::read_to_string(format!("{folder}/log")).unwrap_or_default();
    assert_eq!(run.code, Some(0), "{}\n{log}", run.stderr);
    let text = run.text();
    for words in [
        "would serve /home from ",
        "the settings are valid",
        "alice\n",
        "524288000 ",
        "server/server.key",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
