//! Standard input as a source: a stream of unknown length that is read once. A child of this
//! process has the standard input for it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use xdfs::{LocalPlace, TransferOptions};

use crate::support::{Folders, Serving, client, finish};

const PORT: &str = "XDFS_TEST_STREAM_PORT";

/// Not a test of its own: what the child does.
#[test]
#[ignore = "runs in a child of the test below"]
fn child() {
    let Ok(port) = std::env::var(PORT) else {
        return;
    };
    let addr = format!("127.0.0.1:{port}").parse().unwrap();
    let client = client(addr, |options| options.channels = Some(3));
    let transfer = client.upload(
        &LocalPlace::Standard,
        b"/stream",
        &TransferOptions::default(),
    );
    let result = finish(transfer.unwrap()).unwrap();
    println!("bytes={}", result.bytes);
}

#[test]
fn a_stream_of_unknown_length() {
    for length in [0, 1, 5_000_001, 3 << 18] {
        let folders = Folders::new(600);
        let server = Serving::start(&folders.root(), |_| {});
        let content = xdfs_testkit::tree::random_bytes(600, length);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stream::child", "--ignored", "--nocapture"])
            .env(PORT, server.addr.port().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // In pieces that have nothing to do with blocks.
        for piece in content.chunks(70_001) {
            stdin.write_all(piece).unwrap();
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("bytes={length}")), "{said}");
        assert!(std::fs::read(folders.there("stream")).unwrap() == content);
    }
}
