//! Records of TLS that the kernel makes, between two processes.

use crate::support::{Place, Server, assert_content, content, xdfs};

/// What the log says of a direction that the kernel has.
const SENDING: &str = "the kernel makes the TLS records of a channel way=Sending";
const RECEIVING: &str = "the kernel makes the TLS records of a channel way=Receiving";
/// What it says where the kernel has no TLS.
const NONE: &str = "the kernel doesn't make the TLS records of a channel";

#[test]
fn both_processes_leave_private_payload_to_the_kernel_where_it_can() {
    // Set by `cargo xtask ktls`.
    let required = std::env::var_os("XDFS_TEST_KTLS").is_some();
    let place = Place::new();
    for takes_clear in [false, true] {
        let level = if takes_clear { "clear" } else { "private" };
        let flags = ["--listen", "127.0.0.1:0", "--protect", level];
        let server = Server::start_with(&place.root(), &flags);
        let expected = content(7, 9_000_001);
        let source = place.make_here("source", &expected);
        let back = place.here(level);
        let url = server.url(&format!("/{level}"));
        for (from, to, way) in [(&source, &url, SENDING), (&url, &back, RECEIVING)] {
            let run = xdfs(["cp", "-vv", "-n", "2", from, to]).ok();
            let offloaded = run.stderr.contains(way);
            if takes_clear {
                // A level may change at any time there.
                assert!(!offloaded && !run.stderr.contains(NONE), "{}", run.stderr);
            } else {
                assert!(offloaded || run.stderr.contains(NONE), "{}", run.stderr);
                assert!(offloaded || !required, "{}", run.stderr);
                if !offloaded {
                    xdfs_testkit::skip::part("this kernel makes no TLS records");
                }
            }
        }
        assert_content(place.remote(level), &expected);
        assert_content(&back, &expected);
    }
}
