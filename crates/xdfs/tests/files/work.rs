//! Reading and writing: every call, at and beyond the ends, by one and by several at once.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Barrier;
use std::thread;

use xdfs::{Answer, Call, Code, OpenOptions};

use crate::support::{Folders, Serving, client};
use crate::{both, open, pattern};

#[test]
fn what_is_written_is_read_and_stands_on_the_server() {
    let folders = Folders::new(1);
    let serving = Serving::start(&folders.root(), |_| {});
    let client = client(serving.addr, |_| {});
    let file = open(&client, "a", &both());
    let bytes = pattern(1, 300_000);
    file.write_at(5, &bytes).unwrap();
    let mut read = vec![0xff; 300_100];
    assert_eq!(file.read_at(0, &mut read).unwrap(), 300_005);
    assert_eq!(read[..5], [0; 5]);
    assert_eq!(read[5..300_005], bytes);
    // Short only at the end.
    assert_eq!(file.read_at(300_000, &mut read).unwrap(), 5);
    assert_eq!(file.read_at(300_005, &mut read).unwrap(), 0);
    assert_eq!(file.read_at(u64::MAX, &mut read).unwrap(), 0);
    file.sync().unwrap();
    file.sync_data().unwrap();
    assert_eq!(fs::read(folders.there("a")).unwrap()[5..], bytes);
    file.set_len(7).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!((found.size, found.inode), (7, file.identity().inode));
    file.close().unwrap();
    assert_eq!(fs::read(folders.there("a")).unwrap().len(), 7);
}

#[test]
fn several_pieces_are_one_call() {
    let folders = Folders::new(2);
    let serving = Serving::start(&folders.root(), |_| {});
    let client = client(serving.addr, |_| {});
    let file = open(&client, "a", &both());
    file.write_at(0, &[b'.'; 20]).unwrap();
    // The later piece wins where they overlap.
    let pieces: [(u64, &[u8]); 3] = [(0, b"abcdef"), (2, b"XY"), (18, b"1234")];
    file.write_vectored_at(&pieces).unwrap();
    let read = file
        .read_vectored_at(&[(0, 8), (18, 100), (50, 1)])
        .unwrap();
    assert_eq!(read, [&b"abXYef.."[..], b"1234", b""]);
    let fault = file.read_vectored_at(&[(0, 61_441)]).unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument);
    assert_eq!(
        file.read_vectored_at(&[(0, 0)]).unwrap_err().code,
        Code::InvalidArgument
    );
    let many: Vec<(u64, u32)> = (0..257).map(|i| (i, 1)).collect();
    let fault = file.read_vectored_at(&many).unwrap_err();
    assert_eq!(fault.code, Code::InvalidArgument);
    assert_eq!(file.read_vectored_at(&many[..256]).unwrap().len(), 256);
}

#[test]
fn a_file_is_read_and_written_like_a_local_one() {
    let folders = Folders::new(3);
    let serving = Serving::start(&folders.root(), |_| {});
    let client = client(serving.addr, |options| options.channels = Some(3));
    let bytes = pattern(3, 5_000_000);
    let mut file = open(&client, "a", &OpenOptions::writing());
    for piece in bytes.chunks(777) {
        file.write_all(piece).unwrap();
    }
    file.flush().unwrap();
    assert!(fs::read(folders.there("a")).unwrap() == bytes);
    file.close().unwrap();
    let mut file = open(&client, "a", &OpenOptions::reading());
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    // Backwards, and on from there.
    for start in [4_999_990u64, 61_440, 61_439, 0, 3_000_000] {
        assert_eq!(file.seek(SeekFrom::Start(start)).unwrap(), start);
        let mut read = vec![0; 10];
        file.read_exact(&mut read).unwrap();
        let start = start as usize;
        assert_eq!(read, bytes[start..start + 10]);
    }
    assert_eq!(file.seek(SeekFrom::End(-10)).unwrap(), 4_999_990);
    assert_eq!(file.seek(SeekFrom::Current(4)).unwrap(), 4_999_994);
    assert!(file.seek(SeekFrom::Current(-5_000_000)).is_err());
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, bytes[4_999_994..]);
    // What grows is seen from its end on.
    let mut other = fs::OpenOptions::new()
        .append(true)
        .open(folders.there("a"))
        .unwrap();
    other.write_all(b"more").unwrap();
    rest.clear();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"more");
}

#[test]
fn reads_see_the_writes_before_them() {
    let folders = Folders::new(4);
    let serving = Serving::start(&folders.root(), |_| {});
    let client = client(serving.addr, |options| options.channels = Some(4));
    let mut file = open(&client, "a", &both());
    let mut model = vec![0u8; 1_000_000];
    file.write_all(&model).unwrap();
    let mut rng = xdfs_testkit::tree::Random::new(4);
    file.seek(SeekFrom::Start(0)).unwrap();
    for round in 0..400u64 {
        // Writes that overlap each other and what is read ahead.
        let at = rng.below(900_000) as usize;
        let length = 1 + rng.below(if round % 7 == 0 { 99_000 } else { 700 }) as usize;
        let bytes = pattern(round, length);
        file.write_at(at as u64, &bytes).unwrap();
        model[at..at + length].copy_from_slice(&bytes);
        if round % 3 == 0 {
            let near = (at + rng.below(200) as usize).saturating_sub(100);
            let mut read = vec![0; 500];
            let count = file.read_at(near as u64, &mut read).unwrap();
            assert!(read[..count] == model[near..near + count], "round {round}");
        } else {
            let position = file.stream_position().unwrap() as usize;
            let mut read = vec![0; 5_000];
            let count = file.read(&mut read).unwrap();
            assert!(
                read[..count] == model[position..position + count],
                "round {round}"
            );
            if count == 0 {
                file.seek(SeekFrom::Start(0)).unwrap();
            }
        }
    }
    file.close().unwrap();
    assert!(fs::read(folders.there("a")).unwrap() == model);
}

#[test]
fn a_file_is_made_once() {
    let folders = Folders::new(5);
    let serving = Serving::start(&folders.root(), |_| {});
    let new = OpenOptions {
        write: true,
        create_new: true,
        mode: Some(0o640),
        ..OpenOptions::default()
    };
    let barrier = Barrier::new(8);
    let winners: usize = thread::scope(|scope| {
        let racers: Vec<_> = (0..8)
            .map(|_| {
                let (new, barrier, addr) = (&new, &barrier, serving.addr);
                scope.spawn(move || {
                    let client = client(addr, |_| {});
                    barrier.wait();
                    match client.open_file(b"a", new) {
                        Ok(file) => {
                            file.close().unwrap();
                            1
                        }
                        Err(fault) => {
                            assert_eq!(fault.code, Code::AlreadyExists);
                            0
                        }
                    }
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    });
    assert_eq!(winners, 1);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(folders.there("a"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o640);
}

#[test]
fn records_of_several_stay_whole() {
    let folders = Folders::new(6);
    let serving = Serving::start(&folders.root(), |_| {});
    let options = OpenOptions {
        append: true,
        create: true,
        ..OpenOptions::default()
    };
    const RECORDS: usize = 150;
    thread::scope(|scope| {
        for who in 1..=3u8 {
            let (options, addr, path) = (&options, serving.addr, folders.there("log"));
            scope.spawn(move || {
                let client = client(addr, |_| {});
                let mut file = open(&client, "log", options);
                for n in 0..RECORDS {
                    let record = vec![who; 1 + n * 37 % 4000];
                    if n % 2 == 0 {
                        file.write_all(&record).unwrap();
                    } else {
                        // Where it was said to be.
                        let at = file.append(&record).unwrap() as usize;
                        let now = fs::read(&path).unwrap();
                        assert!(now[at..at + record.len()] == record);
                    }
                }
                file.close().unwrap();
            });
        }
    });
    let all = fs::read(folders.there("log")).unwrap();
    let mut rest = &all[..];
    let mut next = [0; 4];
    while let Some(&who) = rest.first() {
        let n = next[usize::from(who)];
        next[usize::from(who)] += 1;
        let (record, later) = rest.split_at(1 + n * 37 % 4000);
        assert!(record.iter().all(|b| *b == who), "a record is torn");
        rest = later;
    }
    assert_eq!(next[1..], [RECORDS; 3]);
}

#[test]
fn what_cannot_be_opened_is_refused() {
    let folders = Folders::new(7);
    let serving = Serving::start(&folders.root(), |_| {});
    let client = client(serving.addr, |_| {});
    fs::create_dir(folders.there("d")).unwrap();
    fs::write(folders.there("f"), b"x").unwrap();
    std::os::unix::fs::symlink("f", folders.there("in")).unwrap();
    std::os::unix::fs::symlink("../../etc/passwd", folders.there("out")).unwrap();
    std::os::unix::fs::symlink("nowhere", folders.there("lost")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(folders.there("s")).unwrap();
    let fails = |path: &str, options: &OpenOptions| {
        client.open_file(path.as_bytes(), options).unwrap_err().code
    };
    let reading = OpenOptions::reading();
    assert_eq!(fails("none", &reading), Code::NotFound);
    assert_eq!(fails("d", &reading), Code::IsDirectory);
    assert_eq!(fails("d", &both()), Code::IsDirectory);
    assert_eq!(fails("f/", &reading), Code::NotDirectory);
    assert_eq!(fails("new/", &both()), Code::IsDirectory);
    assert_eq!(fails("out", &reading), Code::PathEscape);
    assert_eq!(fails("../x", &both()), Code::PathEscape);
    assert_eq!(fails("lost", &reading), Code::NotFound);
    assert_eq!(fails("lost", &both()), Code::NotFound);
    assert_eq!(fails("s", &reading), Code::NotRegularFile);
    assert_eq!(fails(".f.xdfs-part", &both()), Code::PermissionDenied);
    assert_eq!(fails("f\0", &reading), Code::InvalidArgument);
    assert_eq!(fails("f", &OpenOptions::default()), Code::InvalidArgument);
    assert_eq!(fails("mem:zero", &reading), Code::Unsupported);
    let set_id = OpenOptions {
        mode: Some(0o4755),
        ..both()
    };
    assert_eq!(fails("new", &set_id), Code::PermissionDenied);
    // Through a link that stays inside.
    let file = open(&client, "in", &both());
    file.write_at(1, b"y").unwrap();
    file.close().unwrap();
    assert_eq!(fs::read(folders.there("f")).unwrap(), b"xy");
    // What it wasn't opened for.
    let file = open(&client, "f", &reading);
    file.write_at(0, b"z").unwrap();
    assert_eq!(file.sync().unwrap_err().code, Code::InvalidArgument);
    assert_eq!(file.set_len(0).unwrap_err().code, Code::InvalidArgument);
    assert_eq!(file.append(b"z").unwrap_err().code, Code::InvalidArgument);
    let mut byte = [0];
    assert_eq!(file.read_at(0, &mut byte).unwrap(), 1);
    file.close().unwrap();
    let file = open(&client, "f", &OpenOptions::writing());
    let read = file.read_at(0, &mut byte);
    assert_eq!(read.unwrap_err().code, Code::InvalidArgument);
    assert_eq!(fs::read(folders.there("f")).unwrap(), b"");
    assert!(matches!(
        client.call(Call::Stat {
            path: b"f".to_vec(),
            follow: false
        }),
        Ok(Answer::Attributes(_))
    ));
}

#[test]
fn a_session_has_so_many_files_open_and_no_more() {
    let folders = Folders::new(8);
    let serving = Serving::start(&folders.root(), |_| {});
    let client = client(serving.addr, |_| {});
    fs::write(folders.there("f"), b"x").unwrap();
    let reading = OpenOptions::reading();
    let mut files: Vec<_> = (0..1024).map(|_| open(&client, "f", &reading)).collect();
    let fault = client.open_file(b"f", &reading).unwrap_err();
    assert_eq!(fault.code, Code::LimitExceeded);
    files.pop().unwrap().close().unwrap();
    files.push(open(&client, "f", &reading));
    drop(files);
    open(&client, "f", &reading).close().unwrap();
}

#[test]
fn an_error_of_a_write_that_was_taken_is_told_once() {
    let folders = Folders::new(9);
    let serving = Serving::start(&folders.root(), |builder| builder.read_only = false);
    let client = client(serving.addr, |_| {});
    let mut file = open(&client, "a", &both());
    // No file system takes this.
    file.write_at(u64::MAX - 10, b"x").unwrap();
    let error = file.flush().unwrap_err();
    let fault = error.get_ref().unwrap().downcast_ref::<xdfs::Fault>();
    assert_eq!(fault.unwrap().path, b"a");
    file.flush().unwrap();
    file.write_at(0, b"good").unwrap();
    file.write_at(u64::MAX - 10, b"x").unwrap();
    assert!(file.close().is_err());
    assert_eq!(fs::read(folders.there("a")).unwrap(), b"good");
}

#[test]
fn a_server_without_writes_takes_none() {
    let folders = Folders::new(10);
    fs::write(folders.there("f"), b"x").unwrap();
    let serving = Serving::start(&folders.root(), |builder| builder.read_only = true);
    let client = client(serving.addr, |_| {});
    for options in [both(), OpenOptions::writing()] {
        let fault = client.open_file(b"f", &options).unwrap_err();
        assert_eq!(fault.code, Code::ReadOnly);
    }
    let file = open(&client, "f", &OpenOptions::reading());
    assert_eq!(file.metadata().unwrap().size, 1);
}

#[test]
fn transfers_and_files_share_a_session() {
    let folders = Folders::new(11);
    let serving = Serving::start(&folders.root(), |_| {});
    let client = client(serving.addr, |options| options.channels = Some(3));
    let source = folders.make_here("big", 40 << 20);
    let transfer = client
        .upload(
            &xdfs::LocalPlace::Path(source.clone()),
            b"big",
            &xdfs::TransferOptions::default(),
        )
        .unwrap();
    let mut file = open(&client, "a", &both());
    let bytes = pattern(11, 3_000_000);
    file.write_all(&bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert!(read == bytes);
    file.close().unwrap();
    crate::support::finish(transfer).unwrap();
    crate::support::assert_equal(&source, &folders.there("big"));
}
