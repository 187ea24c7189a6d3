//! Runs the whole benchmark once, small, with a stand-in for xdfs and whatever rivals are there.
//!
//! Asserts what the report says and what is left behind, never how fast anything was.

#![cfg(target_os = "linux")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Runs the benchmark with `script` as xdfs; the folders of the groups are beneath `folder`.
fn bench(folder: &Path, script: &str, arguments: &[&str]) -> Output {
    // Not made by this process: what other tests start meanwhile would inherit the file open for
    // writing, and keep it from running.
    let (text, program) = (folder.join("script"), folder.join("xdfs"));
    fs::write(&text, script).expect("the stand-in is written");
    let mut install = Command::new("install");
    install.args(["-m", "755"]).args([&text, &program]);
    assert!(install.status().expect("install starts").success());
    Command::new(env!("CARGO_BIN_EXE_xdfs-bench"))
        .args(arguments)
        .args(["--quick", "--xdfs"])
        .arg(&program)
        .arg("--shm")
        .arg(folder.join("shm"))
        .arg("--disk")
        .arg(folder.join("disk"))
        .arg("--json")
        .arg(folder.join("out.json"))
        .output()
        .expect("the benchmark starts")
}

fn rows(folder: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.join("out.json")).expect("JSON is written");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON is valid");
    assert_eq!(document["schema"], "xdfs-bench/1");
    document["rows"]
        .as_array()
        .expect("rows are an array")
        .clone()
}

#[test]
fn a_quick_run_of_everything() {
    let folder = tempfile::tempdir().unwrap();
    // Calls need a server that speaks.
    let groups = "mem shm disk tiny saturation channels private tree-a tree-b tree-c tree-disk \
                  tree-wan tree-empty wan-shallow wan-fair-clean";
    let groups: Vec<&str> = groups.split_ascii_whitespace().collect();
    let output = bench(folder.path(), include_str!("stand_in.sh"), &groups);
    let (page, log) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{log}");
    assert!(page.contains("a quick run"), "{page}");
    for title in [
        "Memory to memory",
        "tmpfs to tmpfs",
        "disk to disk",
        "2 bytes",
        "small one",
        "many",
        "over private channels",
        "over a private channel",
        "Opening 1000 channels",
        "1000 files, 4 MB",
        "over a long path",
        "empty files",
        "100 Mbit/s, 20 ms round trip",
        "Two transfers at once",
    ] {
        assert!(
            page.lines()
                .any(|line| line.starts_with("## ") && line.contains(title)),
            "{page}"
        );
    }
    let rows = rows(folder.path());
    let ours: Vec<_> = rows.iter().filter(|row| row["tool"] == "xdfs").collect();
    // mem 3 counts, shm 4, disk 3 sizes, tiny 1, saturation 2 sizes, channels 3 counts; private:
    // shm 3, mem 4, tiny 2, channels 2; trees a, b, c and on disk 2; both ways. Empty files go up.
    let of = |group: &str| ours.iter().filter(|row| row["group"] == group).count();
    let far = [of("tree-wan"), of("wan-shallow"), of("wan-fair-clean")];
    let private = 3 + 4 + 2 + 2;
    let trees = 2 + 2 + 2 + 2;
    assert_eq!(
        ours.len() - far.iter().sum::<usize>(),
        2 * (3 + 4 + 3 + 1 + 2 + 3 + private + trees) + 1
    );
    // Not everybody may make a network, and not everywhere is iperf3 to run beside.
    if !page.contains("Skipped: no emulated network") {
        assert_eq!(far[..2], [2 * 2, 2], "{page}");
        assert!([1, 3].contains(&far[2]), "{page}");
        assert!(page.contains("The payload limit is 12.07 MB/s"), "{page}");
    }
    for protection in ["clear", "none", "private"] {
        assert!(ours.iter().any(|row| row["protection"] == protection));
    }
    // The stand-in's transfers are over before they can be sampled.
    assert!(page.contains("Not sampled: "), "{page}");
    for row in ours {
        assert!(row["failure"].is_null(), "{row}");
        assert!(!row["runs"].as_array().unwrap().is_empty(), "{row}");
    }
    let copy = rows
        .iter()
        .find(|row| row["tool"] == "cp" && row["group"] == "shm")
        .unwrap();
    assert_eq!(
        copy["command"],
        "cp --reflink=never DIR/src/33554432 DIR/dst/f"
    );
    for left in ["shm", "disk"] {
        assert_eq!(
            fs::read_dir(folder.path().join(left)).unwrap().count(),
            0,
            "{left} is empty"
        );
    }
}

#[test]
fn a_wrong_copy_is_no_result() {
    let folder = tempfile::tempdir().unwrap();
    // Same size, other bytes.
    let script = include_str!("stand_in.sh").replace(
        "exec cp \"$(local_path \"$1\")\" \"$(local_path \"$2\")\"",
        "printf 'no' >\"$(local_path \"$2\")\"",
    );
    let output = bench(folder.path(), &script, &["tiny"]);
    assert_eq!(output.status.code(), Some(1));
    let rows = rows(folder.path());
    let ours = rows.iter().find(|row| row["tool"] == "xdfs").unwrap();
    assert_eq!(ours["failure"], "the copy differs from the source");
    assert!(ours["runs"].as_array().unwrap().is_empty());
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("## Failed"), "{page}");
}

#[test]
fn a_tree_with_a_file_too_few_is_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let script = include_str!("stand_in.sh").replace(
        "exec cp -r \"$(local_path \"$1\").\" \"$(local_path \"$2\")\"",
        "cp -r \"$(local_path \"$1\").\" \"$(local_path \"$2\")\" && \
         exec rm \"$(local_path \"$2\")d0001/f000001\"",
    );
    let output = bench(folder.path(), &script, &["tree-c"]);
    assert_eq!(output.status.code(), Some(1));
    let rows = rows(folder.path());
    let ours = rows.iter().find(|row| row["tool"] == "xdfs").unwrap();
    let failure = ours["failure"].as_str().unwrap();
    assert!(
        failure.contains("files: 999") && failure.contains("instead of"),
        "{failure}"
    );
}

#[test]
fn calls_that_nobody_answers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(folder.path(), include_str!("stand_in.sh"), &["calls"]);
    assert_eq!(output.status.code(), Some(1));
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(page.contains("- calls up xdfs insecure, n = 1"), "{page}");
}

#[test]
fn wrong_words_get_the_usage() {
    let output = Command::new(env!("CARGO_BIN_EXE_xdfs-bench"))
        .arg("bogus")
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("usage: xdfs-bench"));
}
