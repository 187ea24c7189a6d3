//! Trees from one server to another.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use rustix::fs::XattrFlags;
use xdfs::{Code, ReconnectEvent, ReconnectObserver, ServerFile, TreeEvent, TreeOptions, Way};
use xdfs_testkit::proxy::FaultProxy;

use crate::picture::{assert_same, hard_tree};
use crate::scene::{Origin, across};
use crate::support::{Folders, Serving, client};

/// Small files go from one server to another as many at a time, and not each by itself.
#[test]
fn small_files_travel_in_packs() {
    const FILES: u64 = 500;
    let folders = Folders::new(53);
    let tree = folders.here("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..FILES {
        fs::write(tree.join(format!("f{n}")), n.to_string()).unwrap();
    }
    let origin = Origin::new(&folders.here(""));
    let server = Serving::start(&folders.root(), |_| {});
    let target = FaultProxy::new(server.addr).unwrap();
    let client = client(target.addr(), |_| {});
    let (result, failed) = across(&client, &origin.at("/tree"), "/copy", &options()).unwrap();
    assert_eq!((result.files, failed), (FILES, vec![]));
    assert_same(&tree, &folders.there("copy"));
    let (sent, _) = target.forwarded();
    assert!(
        sent < 60 * FILES,
        "{sent} bytes were sent for {FILES} files"
    );
    // Those that are relayed are the same as those of one server.
    let within = Origin::new(&folders.root());
    let relayed = within.at("/copy").by(Way::Client);
    let (result, failed) = across(&client, &relayed, "/again", &options()).unwrap();
    assert_eq!((result.files, failed), (FILES, vec![]));
    assert_same(&tree, &folders.there("again"));
}

fn options() -> TreeOptions {
    TreeOptions::default()
}

/// Owners, extended attributes, access times and hard links, of small files and large ones.
#[test]
fn both_servers_keep_metadata_and_hard_links() {
    let folders = Folders::new(54);
    let tree = folders.here("tree");
    hard_tree(&tree);
    let large = tree.join("large, with more");
    fs::write(&large, vec![7; 2 << 20]).unwrap();
    let small = tree.join("small, with more");
    fs::write(&small, "small").unwrap();
    let mut has_xattrs = true;
    for file in [&large, &small] {
        let set = rustix::fs::setxattr(file, "user.test", b"value", XattrFlags::empty());
        has_xattrs &= set.is_ok();
        if rustix::process::geteuid().is_root() {
            chown(file, Some(12), Some(34)).unwrap();
        }
        fs::set_permissions(file, fs::Permissions::from_mode(0o2750)).unwrap();
        fs::hard_link(file, file.with_extension("again")).unwrap();
    }
    let origin = Origin::new(&folders.here(""));
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let kept = TreeOptions {
        owner: true,
        xattrs: has_xattrs,
        hard_links: true,
        ..options()
    };
    // Within one server files could stay there, but not with all that.
    let within = Origin::new(&folders.root());
    for (from, target) in [(origin.at("/tree"), "copy"), (within.at("/copy"), "again")] {
        let (_, failed) = across(&client, &from, &format!("/{target}"), &kept).unwrap();
        assert_eq!(failed, []);
        assert_same(&tree, &folders.there(target));
        for file in [&large, &small] {
            let made = folders.there(target).join(file.file_name().unwrap());
            let (here, there) = (fs::metadata(file).unwrap(), fs::metadata(&made).unwrap());
            let kept = |of: &fs::Metadata| (of.mode(), of.uid(), of.gid(), of.nlink());
            assert_eq!(kept(&here), kept(&there), "{target} {file:?}");
            if has_xattrs {
                let mut value = [0; 16];
                let length = rustix::fs::getxattr(&made, "user.test", &mut value).unwrap();
                assert_eq!(&value[..length], b"value");
            }
        }
    }
    // A copy without this process keeps none of it.
    let direct = within.at("/copy").by(Way::Direct);
    let refused = across(&client, &direct, "/third", &kept).unwrap_err();
    assert_eq!(refused.code, Code::InvalidArgument, "{refused}");
    assert!(!folders.there("third").exists());
}

/// The faults of entries say which of the two servers they are of.
#[test]
fn faults_name_their_server() {
    let folders = Folders::new(55);
    let tree = folders.here("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "1").unwrap();
    UnixListener::bind(tree.join("socket")).unwrap();
    let origin = Origin::new(&folders.here(""));
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    fs::create_dir_all(folders.there("copy/tree/file")).unwrap();
    let mut faults = Vec::new();
    let mut observer = |event: TreeEvent<'_>| {
        if let TreeEvent::Failed { path, fault } = event {
            faults.push((path.to_vec(), fault.clone()));
        }
        ControlFlow::Continue(())
    };
    let source = origin.at("/tree");
    let copied = client.copy_tree_from(&source, b"/copy", &options(), &mut observer);
    assert_eq!(copied.unwrap().failed, 2);
    faults.sort_by(|a, b| a.0.cmp(&b.0));
    let [(file, there), (socket, here)] = &faults[..] else {
        panic!("{faults:?}");
    };
    assert_eq!((&file[..], &socket[..]), (&b"file"[..], &b"socket"[..]));
    let machine = |at: &xdfs::RemotePlace| Some(at.address.machine());
    assert_eq!(there.machine, machine(client.place()), "{there}");
    assert_eq!(here.machine, machine(source.place()), "{here}");
    assert_eq!(here.path, b"/tree/socket");
}

/// The server of the source ends when the first file has arrived, and is there again once another
/// session with it is wanted.
#[test]
fn files_are_copied_again_from_a_server_that_restarts() {
    let (from, to) = (Folders::new(51), Folders::new(52));
    let tree = from.there("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..60 {
        fs::write(tree.join(format!("f{n}")), n.to_string()).unwrap();
    }
    let serve = |listen: &str| {
        Serving::start(&from.root(), |builder| {
            builder.listen = vec![listen.parse().unwrap()]
        })
    };
    let source = serve("127.0.0.1:0");
    let address = source.addr;
    let target = Serving::start(&to.root(), |_| {});
    let origin = Arc::new(client(address, |_| {}));
    let mut place = origin.place().clone();
    place.path = b"/tree".to_vec();
    let file = ServerFile::new(place, move |_| Ok(Arc::clone(&origin)));
    let running = Arc::new(Mutex::new(Some(source)));
    let again = {
        let (running, root) = (Arc::clone(&running), from.root());
        move |event: ReconnectEvent<'_>| {
            let mut running = running.lock().unwrap();
            if matches!(event, ReconnectEvent::Lost { .. }) && running.is_none() {
                let change = |builder: &mut xdfs::ServerBuilder| {
                    builder.listen = vec![address.to_string().parse().unwrap()]
                };
                *running = Some(Serving::start(&root, change));
            }
            ControlFlow::Continue(())
        }
    };
    let options = TreeOptions {
        file_digests: Some(xdfs::DigestKind::None),
        reconnect_observer: ReconnectObserver::new(again),
        ..TreeOptions::default()
    };
    let mut failed = Vec::new();
    let mut has_ended = false;
    let mut observer = |event: TreeEvent<'_>| {
        match event {
            TreeEvent::File { .. } if !has_ended => {
                has_ended = true;
                drop(running.lock().unwrap().take());
            }
            TreeEvent::Failed { fault, .. } => failed.push(fault.to_string()),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let to_server = client(target.addr, |_| {});
    let result = to_server.copy_tree_from(&file, b"/copy", &options, &mut observer);
    let result = result.unwrap();
    assert_eq!(failed, Vec::<String>::new());
    assert!(has_ended && result.files > 0, "{result:?}");
    assert_same(&tree, &to.there("copy"));
}
