//! A tree that is stopped, then loses its session, and the same command again.

use std::fs;
use std::ops::ControlFlow;

use xdfs::{
    Client, Code, Fault, RetryPolicy, TransferParameters, TreeEvent, TreeOptions, TreeResult,
};

use crate::scene::{Scene, Way, everywhere};

const FILES: u64 = 80;

/// Names of files within the tree.
fn names() -> impl Iterator<Item = String> {
    (0..FILES).map(|n| format!("{}/{n}", n % 7))
}

/// Copies the tree; `then` happens when so many files have arrived.
fn copy(
    scene: &Scene,
    client: &Client,
    rate: Option<u64>,
    at: u64,
    then: impl Fn() -> ControlFlow<()>,
) -> Result<TreeResult, Fault> {
    let options = TreeOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: rate,
            ..TransferParameters::default()
        },
        journal: Some(scene.folders.here("journals")),
        // A new session is this test's matter.
        retry: RetryPolicy::none(),
        ..TreeOptions::default()
    };
    let mut is_over = false;
    let mut observer = |event: TreeEvent<'_>| match event {
        TreeEvent::Progress(result) if result.files >= at && !is_over => {
            is_over = true;
            then()
        }
        _ => ControlFlow::Continue(()),
    };
    let folders = &scene.folders;
    match scene.case.way {
        Way::Up => client.upload_tree(&folders.here("tree"), b"/copy", &options, &mut observer),
        Way::Down => client.download_tree(b"/tree", &folders.here("copy"), &options, &mut observer),
    }
}

#[test]
fn a_tree_goes_on() {
    everywhere(|case| {
        let scene = case.scene(850, 0);
        let folders = &scene.folders;
        let (source, target) = match case.way {
            Way::Up => (folders.here("tree"), folders.there("copy")),
            Way::Down => (folders.there("tree"), folders.here("copy")),
        };
        for (n, name) in names().enumerate() {
            fs::create_dir_all(source.join(&name).parent().unwrap()).unwrap();
            fs::write(source.join(name), n.to_be_bytes().repeat(40_000)).unwrap();
        }
        let slow = Some(12 << 20);

        let client = scene.client(2);
        let stopped = copy(&scene, &client, slow, 10, || ControlFlow::Break(()));
        assert_eq!(stopped.unwrap_err().code, Code::Cancelled);
        let lost = copy(&scene, &client, slow, 1, || {
            scene.line.block_new(true);
            scene.line.cut_all();
            ControlFlow::Continue(())
        });
        let fault = lost.unwrap_err();
        assert_eq!(fault.code, Code::ConnectionLost, "{fault}");
        drop(client);
        scene.line.block_new(false);

        let nothing = || ControlFlow::Continue(());
        let result = copy(&scene, &scene.client(2), None, FILES, nothing).unwrap();
        assert!(result.resumed.files >= 10, "{result:?}");
        assert_eq!(result.files + result.resumed.files, FILES, "{result:?}");
        assert_eq!(result.failed, 0, "{result:?}");
        for name in names() {
            let [a, b] = [&source, &target].map(|root| fs::read(root.join(&name)).unwrap());
            assert!(a == b, "{name} differs");
        }
    });
}
