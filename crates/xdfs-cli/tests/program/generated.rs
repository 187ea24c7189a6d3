//! Completions and manual pages.

use crate::support::{Place, names, xdfs};

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = xdfs(["completions", shell]).ok().text();
        assert!(
            script.contains("limit-rate") && script.contains("xdfs"),
            "{shell}"
        );
    }
    xdfs(["completions", "tcsh"]).fails(2, &["tcsh"]);
}

#[test]
fn manual_pages_are_written() {
    let place = Place::new();
    let dir = place.here("man");
    let run = xdfs(["man", &dir]).ok();
    let pages = names(&dir);
    assert_eq!(run.text().lines().count(), pages.len());
    assert!(pages.contains(&"xdfs.1".to_owned()) && pages.contains(&"xdfs-cp.1".to_owned()));
    let page = std::fs::read_to_string(format!("{dir}/xdfs-cp.1")).unwrap();
    assert!(page.contains("EXIT STATUS") && page.contains("SOURCE"));
    let file = place.make_here("file", b"");
    xdfs(["man", &file]).fails(6, &["file"]);
    // A mistyped path isn't made.
    xdfs(["man", &place.here("nosuch/man1")]).fails(4, &["nosuch/man1"]);
    assert!(!std::path::Path::new(&place.here("nosuch")).exists());
}
