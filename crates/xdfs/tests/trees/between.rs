//! Trees from one server to another, of which one restarts.

use std::fs;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use xdfs::{ReconnectEvent, ReconnectObserver, ServerFile, TreeEvent, TreeOptions};

use crate::picture::assert_same;
use crate::support::{Folders, Serving, client};

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
