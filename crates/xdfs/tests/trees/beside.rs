//! Trees and files in one session, at the same time.

use std::thread;

use xdfs::{TransferOptions, TreeOptions};

use crate::picture::{assert_same, wide_tree};
use crate::scene::{down, up};
use crate::support::{
    Folders, PATIENCE, Serving, assert_equal, client, download, finish, hidden_names, upload,
};

#[test]
fn files_move_beside_trees() {
    let folders = Folders::new(21);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.here("tree");
    wide_tree(&source, 21, 2000, 10_000);
    let file = folders.make_here("file", 40 << 20);
    let other = folders.make_there("other", 30 << 20);
    let options = TransferOptions::default();
    thread::scope(|scope| {
        let tree = scope.spawn(|| up(&client, &source, "/there", &TreeOptions::default()));
        upload(&client, &file, "/file", &options).unwrap();
        download(&client, "/other", &folders.here("other"), &options).unwrap();
        let (result, failed) = tree.join().unwrap().unwrap();
        assert_eq!((result.files, failed), (2000, vec![]));
        assert!(result.elapsed > std::time::Duration::ZERO && PATIENCE > result.elapsed);
    });
    assert_equal(&file, &folders.there("file"));
    assert_equal(&other, &folders.here("other"));
    assert_same(&source, &folders.there("there"));
    assert_eq!(hidden_names(&folders.root()), Vec::<String>::new());
    let back = folders.here("back");
    let local = xdfs::LocalPlace::Path(file.clone());
    let beside = client.upload(&local, b"/again", &options).unwrap();
    down(&client, "/there", &back, &TreeOptions::default()).unwrap();
    finish(beside).unwrap();
    assert_same(&source, &back);
    assert_equal(&file, &folders.there("again"));
}
