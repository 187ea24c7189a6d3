//! The demo passes and leaves nothing behind.

use crate::support::{Place, Running, names, program};

#[test]
fn the_demo_passes_and_cleans_up() {
    let place = Place::new();
    let mut demo = Running::start(
        program()
            .args(["demo", "--size", "64M", "-n", "3"])
            .env("TMPDIR", place.root()),
    );
    let run = demo.wait().ok();
    let text = run.text();
    for words in [
        "by the key SHA256:",
        "encrypted",
        "a channel was broken after",
        "all files are identical",
        "limited by",
        "/s",
        "done",
    ] {
        assert!(text.contains(words), "'{words}' is not in: {text}");
    }
    assert!(names(place.root()).is_empty());
}

#[cfg(unix)]
#[test]
fn an_interrupted_demo_cleans_up_too() {
    let place = Place::new();
    let mut demo = Running::start(
        program()
            .args(["demo", "--size", "2G"])
            .env("TMPDIR", place.root()),
    );
    // It is at work as soon as its directory is there.
    while names(place.root()).is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    demo.signal("INT");
    demo.wait().fails(130, &["stopped by the user"]);
    assert!(names(place.root()).is_empty());
}
