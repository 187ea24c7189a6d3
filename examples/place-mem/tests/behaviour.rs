//! A place in memory does as all stores with paths.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xdfs::store::Store;
use xdfs_place_mem::MemPlace;
use xdfs_testkit::store_behaviour;
use xdfs_testkit::stores::{Subject, request};

store_behaviour!(subjects());

fn subjects() -> Vec<Subject> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = MemPlace::named(&format!("case-{number}"));
    let other = place.clone();
    let make = move |name: &str, bytes: &[u8]| {
        let mut opened = other.open_sink(&request(format!("/{name}"))).unwrap();
        opened.sink.write_at(0, &[IoSlice::new(bytes)]).unwrap();
        opened.sink.publish(bytes.len() as u64, &[]).unwrap();
    };
    vec![Subject {
        label: "mem",
        store: Arc::new(place),
        prefix: vec![b'/'],
        make: Box::new(make),
        names: None,
        keeps: Box::new(()),
    }]
}
