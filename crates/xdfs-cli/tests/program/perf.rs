//! Memory to memory.

use crate::support::{Place, Server, names, xdfs};

#[test]
fn both_ways_by_bytes_and_by_time() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let url = server.url("");
    for way in ["--upload", "--download"] {
        let run = xdfs(["perf", &url, way, "-n", "2", "--bytes", "64M", "--json"]).ok();
        assert_eq!(run.result()["bytes"], 64 << 20, "{way}");
        assert!(run.result()["bytes_per_second"].as_f64().unwrap() > 0.0);
        let run = xdfs(["perf", &url, way, "--seconds", "0.3", "--json"]).ok();
        assert!(run.result()["bytes"].as_u64().unwrap() > 0, "{way}");
        assert!(run.result()["seconds"].as_f64().unwrap() >= 0.25, "{way}");
    }
    let run = xdfs(["perf", &url, "--bytes", "8M"]).ok();
    assert!(
        run.text().starts_with("upload: 8.39 MB in "),
        "{}",
        run.text()
    );
    assert!(names(place.root()).is_empty());
}

#[test]
fn a_read_only_server_can_be_measured() {
    let place = Place::new();
    let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--read-only"]);
    xdfs(["perf", &server.url("/"), "--bytes", "1M"]).ok();
}

#[test]
fn a_missing_server_is_named() {
    xdfs(["perf", "xdfs://127.0.0.1:1"]).fails(3, &["127.0.0.1:1", "hint: "]);
}
