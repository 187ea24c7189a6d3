//! The client of FTP as a store: the cases of all stores that FTP can meet.
//!
//! It sends bytes in order, so nothing that was sent is cut or written again; and it knows files by
//! their names, sizes and times, so a source that was open doesn't keep its version.

use std::path::PathBuf;
use std::sync::Arc;

use xdfs_access::{Admit, SystemClock};
use xdfs_gridftp::client::{FtpStore, PathOrigin, Protection, Settings};
use xdfs_gridftp::door::Options;
use xdfs_store::{LocalStore, Place as _, ServerStore};
use xdfs_testkit::store_behaviour;
use xdfs_testkit::stores::Subject;

use super::Running;

store_behaviour! { @ subjects() =>
    what_is_published_is_read_back
    nothing_is_visible_before_it_is_published
    a_target_that_appears_meanwhile_stays
    a_check_promises_the_path_and_makes_nothing
    each_version_has_its_own_tag
    reads_past_the_end_are_empty
    a_directory_takes_the_name_of_the_request
}

fn subjects() -> Vec<Subject> {
    let folder = tempfile::tempdir().unwrap();
    let files = ServerStore::new(LocalStore::rooted(folder.path(), false).unwrap());
    let admit = Admit::Open(Arc::new(files));
    let server = Running::with(Options::default(), admit, Arc::new(SystemClock));
    let store = FtpStore::new(Settings {
        host: server.address.ip().to_string(),
        port: server.address.port(),
        user: None,
        password: None,
        protection: Protection::None,
        carrier: None,
        paths: PathOrigin::Root,
        is_uncompared: false,
        channels: None,
        uploads: None,
        stripes: None,
    });
    store.connect().unwrap();
    let root: PathBuf = folder.path().into();
    vec![Subject {
        label: "gridftp",
        store: Arc::new(store),
        prefix: b"/".to_vec(),
        make: Box::new(move |name, bytes| std::fs::write(root.join(name), bytes).unwrap()),
        names: None,
        keeps: Box::new((server, folder)),
    }]
}
