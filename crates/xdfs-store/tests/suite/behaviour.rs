//! The stores of this crate do as all stores with paths.

use std::sync::Arc;

use xdfs_store::{LocalStore, MemStore, ServerStore, Store};
use xdfs_testkit::store_behaviour;
use xdfs_testkit::stores::Subject;

use crate::common::*;

store_behaviour!(subjects());

fn subjects() -> Vec<Subject> {
    let memory = MemStore::new();
    let made = memory.clone();
    let temp = || tempfile::tempdir().unwrap();
    let (rooted_dir, unrooted_dir, server_dir) = (temp(), temp(), temp());
    let mut unrooted_prefix = path_bytes(unrooted_dir.path()).to_vec();
    unrooted_prefix.push(b'/');
    vec![
        Subject {
            label: "memory",
            store: Arc::new(memory),
            prefix: vec![],
            make: Box::new(move |name, bytes| made.insert(name, bytes.to_vec())),
            names: None,
            keeps: Box::new(()),
        },
        in_directory(
            "rooted",
            Arc::new(rooted(rooted_dir.path())),
            b"/",
            rooted_dir,
        ),
        in_directory(
            "unrooted",
            Arc::new(LocalStore::unrooted()),
            &unrooted_prefix,
            unrooted_dir,
        ),
        in_directory(
            "server",
            Arc::new(ServerStore::new(rooted(server_dir.path()))),
            b"",
            server_dir,
        ),
    ]
}

fn in_directory(
    label: &'static str,
    store: Arc<dyn Store>,
    prefix: &[u8],
    dir: tempfile::TempDir,
) -> Subject {
    let [made, listed] = [dir.path(), dir.path()].map(ToOwned::to_owned);
    Subject {
        label,
        store,
        prefix: prefix.to_vec(),
        make: Box::new(move |name, bytes| std::fs::write(made.join(name), bytes).unwrap()),
        names: Some(Box::new(move || names(&listed))),
        keeps: Box::new(dir),
    }
}
