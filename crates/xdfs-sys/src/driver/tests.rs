//! What C declares is what Rust reads. How libraries behave, and misbehave, is tested in
//! `xdfs-xio`.

use std::path::Path;
use std::process::Command;

use super::*;

/// The compiler of C checks each offset and constant.
#[test]
fn the_table_has_the_layout_of_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    let mut text = String::from("#include \"xdfs_xio_driver.h\"\n");
    for (condition, name) in table::layout() {
        text += &format!("_Static_assert({condition}, \"{name}\");\n");
    }
    let constants = [
        ("XDFS_XIO_ORDER", property::ORDER),
        ("XDFS_XIO_INTEGRITY", property::INTEGRITY),
        ("XDFS_XIO_PROTECTION", property::PROTECTION),
    ];
    for (name, value) in constants {
        text += &format!("_Static_assert({name} == {value}, \"{name}\");\n");
    }
    std::fs::write(&source, &text).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let compile = |source: &Path| {
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-fsyntax-only", "-I"]);
        compiler.arg(root.join("include")).arg(source).output()
    };
    let run = match compile(&source) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return xdfs_testkit::skip::test("this machine has no C compiler");
        }
        run => run.unwrap(),
    };
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{errors}");
    // A wrong one would be noticed.
    std::fs::write(
        &source,
        text.replace("XDFS_XIO_ORDER == 1", "XDFS_XIO_ORDER == 2"),
    )
    .unwrap();
    assert!(!compile(&source).unwrap().status.success());
}
