//! Drivers of a program that panic while a session uses them.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use xdfs::TransferOptions;
use xdfs::drivers::{Driver, Drivers, End, Output, Registry, Room, Transform};

use crate::support::{Folders, Serving, assert_equal, client, hidden_names, upload};

/// A transform that passes bytes on, and panics in the decoding of as many calls as are due.
#[derive(Debug)]
struct Trap {
    due: Arc<AtomicU32>,
}

impl Transform for Trap {
    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        let mut used = 0;
        for slice in content {
            let room = out.room();
            let count = room.len().min(slice.len());
            room[..count].copy_from_slice(&slice[..count]);
            out.advance(count);
            used += count;
        }
        Ok(used)
    }

    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        _: &mut Output,
    ) -> io::Result<usize> {
        let one_less = |due: u32| due.checked_sub(1);
        let due = self
            .due
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        assert!(due.is_err() || encoded.is_empty(), "on purpose");
        Ok(content.put(encoded))
    }
}

/// The drivers of a side with a trap, and its switch.
fn drivers() -> (Drivers, Arc<AtomicU32>) {
    let due = Arc::new(AtomicU32::new(0));
    let switch = Arc::clone(&due);
    let trap = Driver::transform("trap", &[], move |()| {
        let due = Arc::clone(&switch);
        move |_: End| {
            let due = Arc::clone(&due);
            Ok(Trap { due })
        }
    });
    let drivers = Drivers {
        registry: Registry::standard().with(trap),
        stacks: vec!["tcp,trap".parse().unwrap()],
    };
    (drivers, due)
}

/// The panics cost channels: those that are left, or new ones, bring the file over, and the server
/// serves the next session.
#[test]
fn a_panic_in_the_server_costs_a_channel() {
    let folders = Folders::new(880);
    let (drivers, due) = drivers();
    let server = Serving::start(&folders.root(), |builder| builder.drivers = drivers);
    let source = folders.make_here("source", 24 << 20);
    let options = TransferOptions::default();
    let several = client(server.addr, |options| options.channels = Some(4));
    let first = folders.make_here("first", 1000);
    upload(&several, &first, "/first", &options).unwrap();
    due.store(2, Ordering::SeqCst);
    upload(&several, &source, "/file", &options).unwrap();
    assert_eq!(due.load(Ordering::SeqCst), 0);
    assert_equal(&source, &folders.there("file"));
    drop(several);
    // Every channel panics: an error, and no hanging.
    due.store(u32::MAX, Ordering::SeqCst);
    let lost = client(server.addr, |options| options.channels = Some(1));
    upload(&lost, &first, "/lost", &options).unwrap_err();
    due.store(0, Ordering::SeqCst);
    let next = client(server.addr, |_| ());
    upload(&next, &source, "/next", &options).unwrap();
    assert_equal(&source, &folders.there("next"));
    drop((lost, next));
    assert_eq!(hidden_names(&folders.root()), [""; 0]);
}

#[test]
fn a_panic_in_the_client_costs_a_channel() {
    let folders = Folders::new(881);
    let server = Serving::start(&folders.root(), |_| ());
    let source = folders.make_here("source", 24 << 20);
    let options = TransferOptions::default();
    let (drivers, due) = drivers();
    let client = client(server.addr, |options| {
        options.channels = Some(4);
        options.drivers = drivers;
    });
    let first = folders.make_here("first", 1000);
    upload(&client, &first, "/first", &options).unwrap();
    due.store(2, Ordering::SeqCst);
    upload(&client, &source, "/file", &options).unwrap();
    assert_equal(&source, &folders.there("file"));
    due.store(u32::MAX, Ordering::SeqCst);
    let fault = upload(&client, &source, "/lost", &options).unwrap_err();
    assert_eq!(fault.side, xdfs::Side::Local, "{fault}");
    assert!(fault.to_string().contains("panicked"), "{fault}");
}
