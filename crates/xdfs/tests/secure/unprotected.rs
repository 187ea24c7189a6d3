//! One end with protection, and one without.

use std::fs;

use xdfs::{Code, ServerBuilder};

use crate::world::World;

#[test]
fn a_client_without_protection_hears_why_it_is_refused() {
    let world = World::new();
    let source = world.source(100_000);
    for channels in [1, 4] {
        let mut visit = world.visit("", Vec::new()).channels(channels);
        visit.options.security = None;
        let fault = visit.upload(&source, "copy").unwrap_err();
        assert!(
            matches!(fault.code, Code::BadMagic | Code::ProtectionRefused),
            "{fault:?}"
        );
    }
    world.nothing_published();
}

#[test]
fn a_client_with_protection_never_goes_without() {
    let world = World::new();
    let key = world.owner_key();
    let source = world.source(100_000);
    let root = world.path("bare");
    fs::create_dir(&root).unwrap();
    let server = ServerBuilder {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        root: root.clone(),
        ..ServerBuilder::default()
    };
    let server = server.bind().unwrap();
    let addr = server.addresses()[0].to_string().parse().unwrap();
    let handle = server.handle();
    let thread = std::thread::spawn(move || server.run());
    for channels in [1, 4] {
        let visit = world.visit("", vec![key.clone()]).at(addr);
        let fault = visit.channels(channels).upload(&source, "copy");
        let fault = fault.unwrap_err();
        assert_eq!(fault.code, Code::ProtectionRefused, "{fault:?}");
    }
    handle.shutdown();
    handle.shutdown();
    thread.join().unwrap().unwrap();
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    assert!(!world.path("client/known_hosts").exists());
}
