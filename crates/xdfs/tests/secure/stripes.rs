//! Files that a group writes: home, and clients that lie or are late.

use std::fs;
use std::sync::Arc;

use xdfs::security::{Credential, Rights};
use xdfs::store::MemStore;
use xdfs::{Answer, Call, Client, Code, Fault, Skip, TransferOptions, TransferParameters};
use xdfs_proto::digest::{BlockHasher, DigestKind, DigestValue, Fragment, FragmentMap};
use xdfs_proto::frame::Resume;
use xdfs_proto::stripes::{PartPlace, Stripes, StripesCall, StripesOrder, part_path};
use xdfs_proto::third_party::{CopyId, Delegation, ThirdPartyCall};
use xdfs_proto::{ByteRange, FileId, SourceTag};
use xdfs_security::identity::ServerIdentity;

use crate::group::world_of;
use crate::world::{Visit, World};

const BLOCK: usize = 64 << 10;
const TAG: SourceTag = SourceTag([5; 16]);

fn world() -> World {
    let all = Rights::READ | Rights::LIST | Rights::CREATE | Rights::WRITE | Rights::DELETE;
    world_of(all, Some(1 << 20))
}

fn alice(world: &World) -> Visit {
    world.visit("alice", vec![world.user_key("alice")])
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..3 * BLOCK + 100)
        .map(|at| (at * 31 / 7 + seed) as u8)
        .collect()
}

fn order(tag: SourceTag) -> StripesOrder {
    StripesOrder {
        path: b"/data/file".to_vec(),
        name: Vec::new(),
        length: bytes(0).len() as u64,
        tag,
        digest: DigestKind::Blake3,
        block_bytes: BLOCK as u32,
        overwrite: false,
        resume: Resume::Trust,
        mode: None,
        mtime_ns: None,
    }
}

fn call(client: &Client, call: StripesCall) -> Result<Answer, Fault> {
    client.call(Call::Stripes(call))
}

fn open(client: &Client, order: StripesOrder) -> Result<Stripes, Fault> {
    match call(client, StripesCall::Open(Box::new(order)))? {
        Answer::Stripes(stripes) => Ok(*stripes),
        other => panic!("{other:?}"),
    }
}

/// The parts of a file: its blocks.
fn fragments(of: &[u8]) -> Vec<Fragment> {
    let parts = of.chunks(BLOCK).enumerate();
    let fragment = |(number, part): (usize, &[u8])| {
        let mut hasher = BlockHasher::new(DigestKind::Blake3, false, (number * BLOCK) as u64);
        hasher.update(part);
        hasher.finish(FileId(0)).1
    };
    parts.map(fragment).collect()
}

fn digest(of: &[u8]) -> DigestValue {
    DigestValue::Blake3(blake3::hash(of).into())
}

/// Sends a part to the file of this number.
fn send(client: &Client, number: u64, offset: usize, part: &[u8]) -> Result<(), Fault> {
    let store = MemStore::new();
    store.insert("part", part.to_vec());
    let place = PartPlace {
        number,
        offset: offset as u64,
        path: b"data/file".to_vec(),
    };
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            resume: Resume::Never,
            ..TransferParameters::default()
        },
        skip: Skip::Never,
        ..TransferOptions::default()
    };
    let sent = client.upload_from(&store, b"part", &part_path(&place), &options);
    sent?.wait().map(drop)
}

fn send_all(client: &Client, number: u64, all: &[u8]) {
    for (at, part) in all.chunks(BLOCK).enumerate() {
        send(client, number, at * BLOCK, part).unwrap();
    }
}

fn take_in(client: &Client, id: u64, fragments: &[Fragment]) -> Result<u64, Fault> {
    let fragments = fragments.to_vec();
    match call(client, StripesCall::TakeIn { id, fragments })? {
        Answer::Copied { bytes } => Ok(bytes),
        other => panic!("{other:?}"),
    }
}

fn publish(client: &Client, id: u64, of: &[u8]) -> Result<(), Fault> {
    let digest = digest(of);
    call(client, StripesCall::Publish { id, digest }).map(drop)
}

#[track_caller]
fn is_refused<T>(result: Result<T, Fault>, code: Code) {
    assert_eq!(result.map(drop).unwrap_err().code, code);
}

fn there(world: &World) -> Vec<String> {
    let names = fs::read_dir(world.path("root")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn home_takes_in_what_it_finds_and_nothing_else() {
    let world = world();
    let alice = alice(&world);
    let client = alice.connect().unwrap();
    let all = bytes(1);
    let parts = fragments(&all);
    let opened = open(&client, order(TAG)).unwrap();
    assert_eq!((&*opened.path, &opened.held), (&b"/data/file"[..], &vec![]));
    // Never sent; sent with another content; sent.
    let mut other = all[BLOCK..2 * BLOCK].to_vec();
    other[7] ^= 1;
    send(&client, opened.number, BLOCK, &other).unwrap();
    send(
        &client,
        opened.number,
        2 * BLOCK,
        &all[2 * BLOCK..3 * BLOCK],
    )
    .unwrap();
    let taken = take_in(&client, opened.id, &parts).unwrap();
    assert_eq!(taken, BLOCK as u64);
    // Twice is once.
    let taken = take_in(&client, opened.id, &parts[2..3]).unwrap();
    assert_eq!(taken, BLOCK as u64);
    send_all(&client, opened.number, &all);
    let taken = take_in(&client, opened.id, &parts).unwrap();
    assert_eq!(taken, all.len() as u64);
    publish(&client, opened.id, &all).unwrap();
    assert_eq!(fs::read(world.path("root/file")).unwrap(), all);
    assert_eq!(there(&world), ["file"]);
    // It is closed, and what comes late isn't written.
    is_refused(publish(&client, opened.id, &all), Code::NotFound);
    is_refused(take_in(&client, opened.id, &parts), Code::NotFound);
    is_refused(send(&client, opened.number, 0, &other), Code::NotFound);
    assert_eq!(fs::read(world.path("root/file")).unwrap(), all);
    // The target exists now.
    is_refused(open(&client, order(TAG)), Code::AlreadyExists);
}

#[test]
fn a_file_is_published_with_the_digest_of_its_source_or_not_at_all() {
    let world = world();
    let alice = alice(&world);
    let client = alice.connect().unwrap();
    let all = bytes(2);
    // A part is missing.
    let opened = open(&client, order(TAG)).unwrap();
    send_all(&client, opened.number, &all);
    take_in(&client, opened.id, &fragments(&all)[1..]).unwrap();
    is_refused(publish(&client, opened.id, &all), Code::IntegrityMismatch);
    assert_eq!(there(&world), [""; 0]);
    // All are there, and the digest is another one.
    let opened = open(&client, order(TAG)).unwrap();
    assert_eq!(opened.held, []);
    send_all(&client, opened.number, &all);
    take_in(&client, opened.id, &fragments(&all)).unwrap();
    is_refused(
        publish(&client, opened.id, &bytes(3)),
        Code::IntegrityMismatch,
    );
    assert_eq!(there(&world), [""; 0]);
}

#[test]
fn an_attempt_resumes_from_what_was_taken_in() {
    let world = world();
    let all = bytes(4);
    let parts = fragments(&all);
    let alice = alice(&world);
    let first = alice.connect().unwrap();
    let opened = open(&first, order(TAG)).unwrap();
    send_all(&first, opened.number, &all);
    take_in(&first, opened.id, &parts[..2]).unwrap();
    // Another upload there waits for its turn.
    let second = alice.connect().unwrap();
    is_refused(open(&second, order(TAG)), Code::Busy);
    let (id, discard) = (opened.id, false);
    call(&first, StripesCall::Close { id, discard }).unwrap();
    let again = open(&second, order(TAG)).unwrap();
    assert_eq!(again.number, opened.number);
    let mut held = FragmentMap::new(DigestKind::Blake3);
    again.held.iter().for_each(|own| assert!(held.insert(*own)));
    let end = 2 * BLOCK as u64;
    assert_eq!(held.ranges().as_slice(), [ByteRange { start: 0, end }]);
    take_in(&second, again.id, &parts[2..]).unwrap();
    publish(&second, again.id, &all).unwrap();
    assert_eq!(fs::read(world.path("root/file")).unwrap(), all);
}

/// Another version of the source starts over; what was meant for the old file is not written.
#[test]
fn parts_of_an_earlier_version_are_stale() {
    let world = world();
    let alice = alice(&world);
    let client = alice.connect().unwrap();
    let (old, new) = (bytes(5), bytes(6));
    let opened = open(&client, order(TAG)).unwrap();
    send_all(&client, opened.number, &old);
    take_in(&client, opened.id, &fragments(&old)[..1]).unwrap();
    let (id, discard) = (opened.id, false);
    call(&client, StripesCall::Close { id, discard }).unwrap();
    // Another file must not get the number of the old one.
    fs::hard_link(world.path("root/.file.xdfs-part"), world.path("kept")).unwrap();
    let again = open(&client, order(SourceTag([6; 16]))).unwrap();
    assert_eq!(again.held, []);
    assert_ne!(again.number, opened.number);
    is_refused(send(&client, opened.number, 0, &old[..BLOCK]), Code::Stale);
    send_all(&client, again.number, &new);
    take_in(&client, again.id, &fragments(&new)).unwrap();
    publish(&client, again.id, &new).unwrap();
    assert_eq!(fs::read(world.path("root/file")).unwrap(), new);
}

#[test]
fn nothing_is_written_outside_of_the_file_and_its_rights() {
    let world = world();
    let alice = alice(&world);
    let client = alice.connect().unwrap();
    let all = bytes(7);
    let length = all.len();
    let opened = open(&client, order(TAG)).unwrap();
    let number = opened.number;
    // Past its end, which the largest file of the export bounds.
    for offset in [length - 99, length, usize::MAX] {
        let sent = send(&client, number, offset, &all[..100]);
        is_refused(sent, Code::InvalidArgument);
    }
    let large = StripesOrder {
        length: (1 << 20) + 1,
        ..order(TAG)
    };
    is_refused(open(&alice.connect().unwrap(), large), Code::QuotaExceeded);
    // Off the grid, and past the end.
    let mut off = fragments(&all);
    off[0].range.end -= 1;
    is_refused(take_in(&client, opened.id, &off), Code::InvalidArgument);
    let past = ByteRange::at(4 * BLOCK as u64, BLOCK as u64).unwrap();
    let past = Fragment {
        range: past,
        ..fragments(&all)[1]
    };
    is_refused(take_in(&client, opened.id, &[past]), Code::InvalidArgument);
    // A target is open in its session alone.
    let other = alice.connect().unwrap();
    is_refused(publish(&other, opened.id, &all), Code::NotFound);
    let (id, discard) = (opened.id, true);
    call(&other, StripesCall::Close { id, discard }).unwrap();
    send(&other, number, 0, &all[..BLOCK]).unwrap();
    // Files that are whole have no such place.
    fs::write(world.path("root/whole"), b"content").unwrap();
    let place = PartPlace {
        number,
        offset: 0,
        path: b"data/whole".to_vec(),
    };
    let store = MemStore::new();
    store.insert("part", b"other".to_vec());
    let options = TransferOptions::default();
    let sent = other.upload_from(&store, b"part", &part_path(&place), &options);
    is_refused(sent.and_then(|sent| sent.wait()), Code::NotFound);
    drop(client);
    // The end of the session removes what nothing was taken in of.
    for _ in 0..500 {
        if there(&world) == ["whole"] {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{:?}", there(&world));
}

/// A capability to write the file is for an upload of it, and not for what others write.
#[test]
fn a_capability_opens_no_stripes() {
    let world = world();
    let alice = alice(&world);
    let client = alice.connect().unwrap();
    let opened = open(&client, order(TAG)).unwrap();
    let holder = Arc::new(ServerIdentity::temporary(&[]).unwrap());
    let delegation = Delegation {
        copy: CopyId([7; 16]),
        writes: true,
        holder: holder.fingerprint().0,
        bytes_max: 1 << 20,
        life_s: 60,
        path: b"/data/file".to_vec(),
    };
    let delegate = ThirdPartyCall::Delegate(Box::new(delegation));
    let Ok(Answer::Capability(text)) = client.call(Call::ThirdParty(delegate)) else {
        panic!("no capability");
    };
    let capability = Credential::Capability { text, holder };
    let limited = world.visit("", vec![capability]).connect().unwrap();
    is_refused(open(&limited, order(TAG)), Code::PermissionDenied);
    let sent = send(&limited, opened.number, 0, &bytes(8)[..BLOCK]);
    is_refused(sent, Code::PermissionDenied);
}

#[test]
fn who_may_not_write_opens_nothing() {
    let world = world_of(Rights::READ | Rights::LIST, None);
    is_refused(
        open(&alice(&world).connect().unwrap(), order(TAG)),
        Code::PermissionDenied,
    );
    // A server of no group.
    let world = World::new();
    let owner = world.visit("owner", vec![world.owner_key()]);
    let order = StripesOrder {
        path: b"/file".to_vec(),
        ..order(TAG)
    };
    is_refused(open(&owner.connect().unwrap(), order), Code::Unsupported);
}
