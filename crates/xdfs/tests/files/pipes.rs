//! Named pipes of the server: read and written as streams, and nobody is held up by those who wait.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use xdfs::{Code, OpenOptions, TransferOptions};

use crate::support::{Folders, Serving, assert_equal, client, finish};
use crate::{both, open, pattern};

fn make_pipe(folders: &Folders, name: &str) -> PathBuf {
    let path = folders.there(name);
    xdfs_testkit::tree::make_pipe(&path).unwrap();
    path
}

fn writing() -> OpenOptions {
    OpenOptions {
        write: true,
        ..OpenOptions::default()
    }
}

#[test]
fn bytes_go_into_a_pipe_beside_a_transfer() {
    let folders = Folders::new(1);
    let serving = Serving::start(&folders.root(), |_| {});
    let pipe = make_pipe(&folders, "p");
    let client = client(serving.addr, |options| options.channels = Some(2));
    let source = folders.make_here("big", 20 << 20);
    let place = xdfs::LocalPlace::Path(source.clone());
    let transfer = client.upload(&place, b"big", &TransferOptions::default());
    let bytes = pattern(1, 3_000_000);
    thread::scope(|scope| {
        let reader = scope.spawn(|| fs::read(&pipe).unwrap());
        let mut file = open(&client, "p", &writing());
        assert!(file.is_pipe());
        file.write_all(&bytes).unwrap();
        file.close().unwrap();
        assert!(reader.join().unwrap() == bytes);
    });
    finish(transfer.unwrap()).unwrap();
    assert_equal(&source, &folders.there("big"));
}

#[test]
fn bytes_come_out_of_a_pipe_until_nobody_writes() {
    let folders = Folders::new(2);
    let serving = Serving::start(&folders.root(), |_| {});
    let pipe = make_pipe(&folders, "p");
    let client = client(serving.addr, |_| {});
    let bytes = pattern(2, 3_000_000);
    thread::scope(|scope| {
        let mut file = open(&client, "p", &OpenOptions::reading());
        scope.spawn(|| {
            // The other side waits meanwhile, and doesn't take silence for the end.
            thread::sleep(Duration::from_millis(100));
            let mut pipe = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
            let (first, rest) = bytes.split_at(10);
            pipe.write_all(first).unwrap();
            thread::sleep(Duration::from_millis(100));
            pipe.write_all(rest).unwrap();
        });
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == bytes);
        file.close().unwrap();
    });
    // A writer that says nothing ends it as well.
    let mut file = open(&client, "p", &OpenOptions::reading());
    drop(fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    assert_eq!(file.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn a_pipe_joins_two_clients() {
    let folders = Folders::new(3);
    let serving = Serving::start(&folders.root(), |_| {});
    make_pipe(&folders, "p");
    let bytes = pattern(3, 1_000_000);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let client = client(serving.addr, |_| {});
            let mut read = Vec::new();
            let mut file = open(&client, "p", &OpenOptions::reading());
            file.read_to_end(&mut read).unwrap();
            read
        });
        let client = client(serving.addr, |_| {});
        let mut file = open(&client, "p", &writing());
        file.write_all(&bytes).unwrap();
        file.close().unwrap();
        assert!(reader.join().unwrap() == bytes);
    });
}

#[test]
fn who_waits_for_a_pipe_holds_up_nobody() {
    let folders = Folders::new(4);
    let serving = Serving::start(&folders.root(), |_| {});
    let pipe = make_pipe(&folders, "p");
    make_pipe(&folders, "silent");
    let client = client(serving.addr, |_| {});
    let silent = open(&client, "silent", &OpenOptions::reading());
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..40)
            .map(|_| scope.spawn(|| open(&client, "p", &writing())))
            .collect();
        scope.spawn(|| {
            let mut none = [0; 10];
            (&silent).read(&mut none)
        });
        // Work goes on meanwhile.
        let file = open(&client, "f", &both());
        file.write_at(0, b"x").unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        let reader = fs::OpenOptions::new().read(true).open(&pipe).unwrap();
        for file in waiting {
            file.join().unwrap().close().unwrap();
        }
        drop(reader);
        let end = fs::OpenOptions::new()
            .write(true)
            .open(folders.there("silent"));
        drop(end.unwrap());
    });
    // The end of a session ends what waits.
    let file = open(&client, "silent", &OpenOptions::reading());
    drop(client);
    assert!((&file).read(&mut [0; 10]).is_err());
}

#[test]
fn a_pipe_without_its_other_end_is_told() {
    let folders = Folders::new(5);
    let serving = Serving::start(&folders.root(), |_| {});
    let pipe = make_pipe(&folders, "p");
    let client = client(serving.addr, |_| {});
    let both_ways = client.open_file(b"p", &both()).unwrap_err();
    assert_eq!(both_ways.code, Code::InvalidArgument);
    let reader = {
        use std::os::unix::fs::OpenOptionsExt as _;
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
        let flags = i32::try_from(nonblocking).unwrap();
        let mut reader = fs::OpenOptions::new();
        reader.read(true).custom_flags(flags).open(&pipe)
    };
    let mut file = open(&client, "p", &writing());
    drop(reader.unwrap());
    let error = file.write_all(b"x").unwrap_err();
    let fault = error.get_ref().unwrap().downcast_ref::<xdfs::Fault>();
    assert!(fault.unwrap().cause.contains("no reader"), "{error}");
    // What only regular files can.
    assert_eq!(file.set_len(0).unwrap_err().code, Code::NotRegularFile);
    assert!(std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(0)).is_err());
    assert_eq!(file.metadata().unwrap().kind, xdfs::FileKind::Fifo);
}
