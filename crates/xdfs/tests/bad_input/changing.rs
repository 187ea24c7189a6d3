//! Sources that change while they are read. A bound on the rate makes time for it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use xdfs::{
    Code, Fault, LocalPlace, Side, Transfer, TransferOptions, TransferParameters, TransferResult,
};
use xdfs_testkit::wait;

use crate::stage::{Stage, assert_fault, assert_old, make_old};
use crate::support::{PATIENCE, client, finish, hidden_names};

const SIZE: u64 = 6 << 20;

fn slow() -> TransferOptions {
    TransferOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: Some(6 << 20),
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    }
}

/// Waits until some bytes have arrived, but far from all.
#[track_caller]
fn begun(transfer: &mut Transfer) {
    let start = Instant::now();
    loop {
        match transfer.progress(Duration::from_millis(200)) {
            Some(progress) if progress.bytes > 0 => return,
            _ => assert!(!transfer.is_finished() && start.elapsed() < PATIENCE),
        }
    }
}

/// Begins an upload or a download over an old target, changes the source, and returns the end.
fn changed(
    stage: &Stage,
    download: bool,
    change: impl FnOnce(&Path),
) -> (Result<TransferResult, Fault>, Vec<u8>, Side) {
    // One channel with a small window, so that the sender can't read far ahead of the receiver.
    let client = client(stage.server.addr, |options| {
        (options.channels, options.window) = (Some(1), Some(64 << 10));
    });
    if download {
        let source = stage.folders.make_there("source", SIZE);
        let target = stage.folders.here("target");
        make_old(&target);
        let place = LocalPlace::Path(target);
        let mut transfer = client.download(b"/source", &place, &slow()).unwrap();
        begun(&mut transfer);
        change(&source);
        (finish(transfer), b"/source".to_vec(), Side::Remote)
    } else {
        let source = stage.folders.make_here("source", SIZE);
        make_old(&stage.folders.there("target"));
        let place = LocalPlace::Path(source.clone());
        let mut transfer = client.upload(&place, b"/target", &slow()).unwrap();
        begun(&mut transfer);
        change(&source);
        let path = source.as_os_str().as_encoded_bytes().to_vec();
        (finish(transfer), path, Side::Local)
    }
}

/// Fails unless a source that is changed so is found out, in both directions.
#[track_caller]
fn found_out(seed: u64, change: impl Fn(&Path)) {
    for download in [false, true] {
        let stage = Stage::new(seed);
        let (result, path, side) = changed(&stage, download, &change);
        let fault = result.unwrap_err();
        assert_fault(&fault, Code::SourceChanged, side, path);
        let (target, folder) = if download {
            (stage.folders.here("target"), stage.folders.here(""))
        } else {
            (stage.folders.there("target"), stage.folders.root())
        };
        // What has arrived is kept for another try, hidden; the target is as it was. A server hears
        // later than its client that the file has failed.
        wait_until_closed(&folder);
        for name in hidden_names(&folder) {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        assert_old(&target);
        stage.still_serves();
    }
}

/// Waits until no sink writes any more: each holds the lock of its unfinished file.
#[track_caller]
fn wait_until_closed(folder: &Path) {
    let is_free = |name: &String| match File::open(folder.join(name)) {
        Ok(file) => file.try_lock().is_ok(),
        Err(_) => true,
    };
    let closed = wait::until(PATIENCE, || hidden_names(folder).iter().all(is_free));
    assert!(closed, "a sink stays open: {:?}", hidden_names(folder));
}

#[test]
fn it_shrinks() {
    found_out(600, |path| {
        OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(SIZE / 2)
            .unwrap();
    });
}

#[test]
fn it_shrinks_to_nothing() {
    found_out(601, |path| {
        std::fs::write(path, b"").unwrap();
    });
}

#[test]
fn it_grows() {
    found_out(602, |path| {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"more").unwrap();
    });
}

#[test]
fn it_is_modified() {
    found_out(603, |path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"other", 3).unwrap();
    });
}

/// A file that is removed or replaced by a rename stays readable in one version: the transfer is
/// of that version.
#[test]
fn it_vanishes_or_is_replaced() {
    for download in [false, true] {
        let stage = Stage::new(604);
        let copy = stage.folders.here("copy");
        let keep = copy.clone();
        let (result, ..) = changed(&stage, download, move |path| {
            std::fs::copy(path, &keep).unwrap();
            std::fs::remove_file(path).unwrap();
        });
        assert_eq!(result.unwrap().bytes, SIZE);
        let target = if download {
            stage.folders.here("target")
        } else {
            stage.folders.there("target")
        };
        crate::support::assert_equal(&copy, &target);
        stage.still_serves();
    }
}

/// Where it was read already, and with the time of modification as it was.
#[test]
fn a_source_written_to_whose_time_is_set_back() {
    found_out(58, |path| {
        let time = std::fs::metadata(path).unwrap().modified().unwrap();
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[9; 10], 0).unwrap();
        file.set_modified(time).unwrap();
    });
}
