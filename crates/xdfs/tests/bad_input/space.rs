//! A disk that is full: a tiny file system of memory, which only root may mount.

use std::path::{Path, PathBuf};
use std::process::Command;

use xdfs::{Code, Side, TransferOptions, TransferParameters};
use xdfs_proto::frame::Frame;
use xdfs_testkit::skip;

use crate::peer::{BLOCK, Peer};
use crate::stage::{OLD, Stage, assert_fault, make_old};
use crate::support::{Serving, client, download, upload};

const SIZE: u64 = 2 << 20;

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
struct Tiny(PathBuf);

impl Tiny {
    /// `None`, with the reason printed, where it can't be mounted.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "--make-private", "-o"])
            .arg(format!("size={SIZE},mode=700"))
            .args(["xdfs-test", at.to_str().unwrap()])
            .output();
        match output {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                skip::test(format_args!("no file system can be mounted: {said}"));
                None
            }
            Err(error) => {
                skip::test(format_args!("there is no mount program: {error}"));
                None
            }
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        // Lazily, in case that a failed test still holds a file there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn the_disk_is_full() {
    let stage = Stage::new(700);
    let Some(tiny) = Tiny::mount(&stage.folders.there("tiny")) else {
        return;
    };
    let target = tiny.0.join("file");
    make_old(&target);
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let source = stage.folders.make_here("source", SIZE + 1);
    let client = stage.client();
    // The length is known: it is refused before anything is sent.
    let fault = upload(&client, &source, "/tiny/file", &options).unwrap_err();
    assert_fault(&fault, Code::NoSpace, Side::Remote, "/tiny/file");
    assert!(fault.hint.contains("space"), "{fault:?}");
    assert_eq!(std::fs::read(&target).unwrap(), OLD);
    // The same as a target of a download.
    stage.folders.make_there("large", SIZE + 1);
    let fault = download(&client, "/large", &target, &options).unwrap_err();
    assert_fault(
        &fault,
        Code::NoSpace,
        Side::Local,
        target.as_os_str().as_encoded_bytes(),
    );
    assert_eq!(std::fs::read(&target).unwrap(), OLD);
    // The session goes on, and what fits goes through.
    let small = stage.folders.make_here("small", SIZE / 4);
    upload(&client, &small, "/tiny/small", &options).unwrap();
    stage.still_serves();
}

/// The length isn't known, so that the space runs out in the middle.
#[test]
fn the_disk_becomes_full() {
    let stage = Stage::new(701);
    let Some(tiny) = Tiny::mount(&stage.folders.there("tiny")) else {
        return;
    };
    make_old(&tiny.0.join("file"));
    let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
    peer.send(&Frame::Xftsmu(xdfs_proto::frame::Offer {
        overwrite: true,
        ..crate::peer::offer("/tiny/file", None)
    }));
    assert!(matches!(peer.frame(), Frame::Accept(_)));
    for n in 0..2 * SIZE / u64::from(BLOCK) {
        peer.block(n * u64::from(BLOCK), &[1; BLOCK as usize]);
    }
    let (_, fault) = peer.exception();
    assert_fault(&fault, Code::NoSpace, Side::Remote, "/tiny/file");
    assert_eq!(std::fs::read(tiny.0.join("file")).unwrap(), OLD);
    stage.still_serves();
}

/// A download of unknown length onto a disk that becomes full.
#[test]
fn the_disk_here_becomes_full() {
    let stage = Stage::new(702);
    let Some(tiny) = Tiny::mount(&stage.folders.here("tiny")) else {
        return;
    };
    let target = tiny.0.join("file");
    make_old(&target);
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let server = Serving::start(&stage.folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    // Endless, if nothing stops it.
    let fault = download(&client, "mem:zero", &target, &options).unwrap_err();
    assert_fault(
        &fault,
        Code::NoSpace,
        Side::Local,
        target.as_os_str().as_encoded_bytes(),
    );
    assert_eq!(std::fs::read(&target).unwrap(), OLD);
    drop(client);
    stage.still_serves();
}
