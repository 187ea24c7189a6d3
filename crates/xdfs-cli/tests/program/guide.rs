//! The pages of docs/guide: their commands are run, and the flags that they name exist.

use std::process::{Command, Stdio};

use crate::support::{Place, Running, Server, content, program, xdfs};

const TASKS: &str = include_str!("../../../../docs/guide/tasks.md");
const COMPARISON: &str = include_str!("../../../../docs/guide/comparison.md");

#[test]
fn the_tasks_of_the_guide_work_as_they_stand_there() {
    let place = Place::new();
    let server = Server::start(&place.root());
    place.make_here("big.img", &content(1, 3 << 20));
    std::fs::create_dir_all(place.here("tree/sub")).unwrap();
    for name in ["tree/a.txt", "tree/b.txt", "tree/sub/c.txt", "tree/x.o"] {
        place.make_here(name, name.as_bytes());
    }
    let blocks = TASKS.split("```sh\n").skip(1);
    let blocks: Vec<&str> = blocks.map(|b| b.split_once("```").unwrap().0).collect();
    assert!(blocks.len() >= 10, "{blocks:?}");
    let prelude = "set -eux\nxdfs() { command \"$XDFS\" \"$@\"; }\n";
    let commands = [prelude, &blocks.concat()].concat();
    let commands = commands.replace("xdfs://host", &format!("xdfs://{}", server.addresses[0]));
    // A folder of its own, since a name is given to the server, with the key that it knows.
    let folder = place.here("config");
    std::fs::create_dir(&folder).unwrap();
    xdfs(["whoami", &server.url("")]).ok();
    let mut own = program();
    let mut set = own.get_envs();
    let (_, known) = set.find(|(name, _)| *name == "XDFS_CONFIG_DIR").unwrap();
    let key = std::path::Path::new(known.unwrap()).join("id_ed25519");
    std::fs::copy(key, std::path::Path::new(&folder).join("id_ed25519")).unwrap();
    own.env("XDFS_CONFIG_DIR", &folder);
    let mut shell = Command::new("sh");
    shell.args(["-c", &commands]).current_dir(place.here(""));
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("XDFS", own.get_program());
    let run = Running::start(shell.stdin(Stdio::null())).wait().ok();
    // What the comments say.
    assert!(run.stderr.contains("skipped"), "{}", run.stderr);
    assert!(run.text().contains("refused: it is another version now"));
    assert!(!std::path::Path::new(&place.here("fetched/a.txt")).exists());
    assert!(!place.remote("chosen").exists() && place.remote("moved/a.txt").exists());
    assert!(place.remote("replaced/b.txt").exists());
    assert!(place.remote("named/tree/a.txt").exists());
    assert!(place.remote("listed/sub/c.txt").exists() || place.remote("listed/tree").exists());
}

#[test]
fn the_flags_of_the_comparison_exist() {
    let mut count = 0;
    let rows = COMPARISON.lines().filter(|line| line.starts_with("| `"));
    for here in rows.filter_map(|row| row.split('|').nth(2)) {
        for command in here.split('`').filter(|part| part.starts_with("xdfs ")) {
            let mut words = command.split(' ').skip(1);
            let help = xdfs([words.next().unwrap(), "--help"]).ok().text();
            for flag in words.filter(|word| word.starts_with('-')) {
                let stands = |after: &str| help.contains(&format!("{flag}{after}"));
                assert!(
                    stands(" ") || stands(",") || stands("\n"),
                    "{command}: {flag}"
                );
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count}");
}
