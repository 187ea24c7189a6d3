//! Several transfers in one session, several sessions on one target, and the bound on the rate.

use xdfs::{Code, Retry, TransferOptions};

use crate::scene::{Scene, WAYS, everywhere, wait_for_bytes};
use crate::support::{
    Folders, Serving, assert_equal, client, download, finish, hidden_names, upload,
};

#[test]
fn files_back_to_back_on_the_same_channels() {
    everywhere(|case| {
        let scene = case.scene(500, 1);
        let client = scene.client(3);
        let options = &scene.options;
        let lengths = [0, 1, 5 << 20, 256 << 10, 3, 9 << 20, 100];
        // All at once, and then one after the other back.
        let transfers: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(n, &length)| {
                let path = scene.folders.make_here(&n.to_string(), length);
                let place = xdfs::LocalPlace::Path(path);
                client
                    .upload(&place, format!("/{n}").as_bytes(), options)
                    .unwrap()
            })
            .collect();
        for (transfer, length) in transfers.into_iter().zip(lengths) {
            assert_eq!(finish(transfer).unwrap().bytes, length);
        }
        for n in 0..lengths.len() {
            let (name, back) = (n.to_string(), scene.folders.here(&format!("{n}-back")));
            assert_equal(&scene.folders.here(&name), &scene.folders.there(&name));
            download(&client, format!("/{n}"), &back, options).unwrap();
            assert_equal(&scene.folders.here(&name), &back);
        }
        assert_eq!(scene.line.accepted(), 3, "the channels are reused");
        assert_eq!(hidden_names(&scene.folders.root()), [""; 0]);
    });
}

/// A file that fails costs neither the session nor the files beside it.
#[test]
fn a_failure_between_two_files() {
    let folders = Folders::new(501);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.make_here("source", 3 << 20);
    let options = TransferOptions::default();
    for n in 0..5 {
        upload(&client, &source, format!("/{n}"), &options).unwrap();
        let fault = upload(&client, &source, "/none/x", &options).unwrap_err();
        assert_eq!(fault.code, Code::NotFound, "{fault}");
        let absent = download(&client, "/absent", &folders.here("x"), &options);
        assert_eq!(absent.unwrap_err().code, Code::NotFound);
        assert_equal(&source, &folders.there(&n.to_string()));
    }
}

#[test]
fn two_clients_and_one_target() {
    everywhere(|case| {
        let scene = case.scene(502, 16 << 20).rate(16 << 20);
        let (first, second) = (scene.client(1), scene.client(1));
        let mut transfer = scene.start(&first);
        wait_for_bytes(&mut transfer, 1);
        let fault = scene.run(&second).unwrap_err();
        assert_eq!(fault.code, Code::Busy, "{fault}");
        assert_ne!(fault.retry, Retry::Never, "{fault}");
        assert!(
            !fault.path.is_empty() && !fault.hint.is_empty(),
            "{fault:?}"
        );
        finish(transfer).unwrap();
        scene.arrived();
    });
}

/// Bounded from above only: a busy machine may be slower.
#[test]
fn the_rate_is_kept() {
    const RATE: u64 = 12 << 20;
    for way in WAYS {
        let scene = Scene::new(503, way, RATE).rate(RATE);
        let result = scene.run(&scene.client(3)).unwrap();
        let rate = result.bytes_per_second();
        assert!(rate <= 1.5 * RATE as f64, "{rate} bytes a second");
        // The largest share may be that of a processor which is busy with others.
        let share = result.time_shares.of(xdfs::LimitedBy::RateLimit);
        assert!(share > 0.1, "{:?}", result.time_shares);
        scene.arrived();
    }
}

#[test]
fn a_dry_run_writes_nothing() {
    for way in WAYS {
        let mut scene = Scene::new(504, way, 1 << 20);
        scene.options.parameters.dry_run = true;
        let client = scene.client(1);
        assert_eq!(scene.run(&client).unwrap().bytes, 1 << 20);
        scene.unpublished();
        assert_eq!(hidden_names(scene.target.parent().unwrap()), [""; 0]);
        // And finds what a real one would.
        std::fs::write(&scene.target, b"old").unwrap();
        assert_eq!(scene.run(&client).unwrap_err().code, Code::AlreadyExists);
        assert_eq!(std::fs::read(&scene.target).unwrap(), b"old");
    }
}
