//! Servers that take few sessions: one is enough for any work.

use std::fs;
use std::path::Path;

use crate::places::{vsftpd, xdfs};
use crate::stage::{Stage, assert_same_tree, run};

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn everything_works_with_few_sessions() {
    let stage = Stage::open(445, &[]);
    let tree = stage.beside("anonymous/pub/tree");
    for directory in 0..6 {
        for number in 0..10 {
            let name = format!("d{directory}/f{number}");
            Stage::make(&tree.join(name), 100 + number);
        }
    }
    for number in 0..3 {
        Stage::make(&tree.join(format!("large{number}")), 5_000_000 + number);
    }
    for few in [1, 2, 3] {
        let Some((_server, address)) = vsftpd(&stage, &format!("max_per_ip={few}")) else {
            return;
        };
        let url = format!("ftp://{address}/pub");
        let act = |words: &[&str]| run(&mut xdfs(&stage, &[words, &["--insecure"]].concat()));
        let from = format!("{url}/tree");
        let (got, synced) = (stage.here("got"), stage.here("synced"));
        assert!(act(&["ls", &from]).contains("large2"), "{few}");
        let said = act(&["find", &from]);
        assert_eq!(said.lines().count(), 6 * 11 + 3 + 1, "{few}: {said}");
        act(&["cp", "-r", &from, &text(&got)]);
        assert_same_tree(&tree, &got);
        act(&["sync", &from, &text(&synced)]);
        assert_same_tree(&tree, &synced);
        let up = format!("{url}/up{few}");
        act(&["sync", &text(&got), &up]);
        let there = stage.beside("anonymous/pub").join(format!("up{few}"));
        assert_same_tree(&tree, &there);
        fs::remove_file(got.join("d1/f1")).unwrap();
        let said = act(&["sync", "--delete", "--force", &text(&got), &up]);
        assert!(said.contains("deleted"), "{said}");
        assert!(!there.join("d1/f1").exists());
        act(&["rm", "-r", &up]);
        assert!(!there.exists());
        for path in [got, synced] {
            fs::remove_dir_all(path).unwrap();
        }
    }
}
