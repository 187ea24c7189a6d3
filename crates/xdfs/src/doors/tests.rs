//! Tests of `doors`.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xdfs_access::{
    Admit, Door, DoorAddress, DoorControl, Ended, Findings, HostPort, OpenDoor, Site,
};
use xdfs_proto::{Code, Fault};
use xdfs_store::tally::Tally;

use super::run;
use crate::security::ServerSecurity;
use crate::server::ServerBuilder;

/// A door without addresses.
#[derive(Clone, Debug)]
struct Plain {
    name: &'static str,
    private: Option<PathBuf>,
}

/// Its control. It counts one session that ends at each review.
#[derive(Debug)]
struct Control {
    drained: Mutex<Sender<Duration>>,
}

impl Door for Plain {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        self.name
    }

    fn listens(&self) -> Vec<HostPort> {
        Vec::new()
    }

    fn private(&self) -> Vec<&Path> {
        self.private.as_deref().into_iter().collect()
    }

    fn check(&self, _: &Site, _: &mut Findings) -> Vec<DoorAddress> {
        Vec::new()
    }

    fn open(&self, _: &Site, _: Admit) -> Result<OpenDoor, Fault> {
        Ok(open(|drained| drained.recv().map_or(Ok(()), |_| Ok(()))))
    }
}

impl DoorControl for Control {
    fn reload(&self, _: &dyn Door) -> Vec<&'static str> {
        Vec::new()
    }

    fn review(&self) -> Ended {
        Ended {
            sessions: 1,
            tunnels: 2,
        }
    }

    fn tally(&self) -> Option<Arc<Tally>> {
        None
    }

    fn drain(&self, grace: Duration) {
        // It may have ended.
        let _ = self.drained.lock().unwrap().send(grace);
    }
}

/// A door that serves by `run`, which gets the times of grace.
fn open(run: impl FnOnce(Receiver<Duration>) -> Result<(), Fault> + Send + 'static) -> OpenDoor {
    let (sender, receiver) = mpsc::channel();
    OpenDoor {
        addresses: Vec::new(),
        control: Arc::new(Control {
            drained: Mutex::new(sender),
        }),
        run: Box::new(move || run(receiver)),
    }
}

fn plain(name: &'static str) -> Arc<dyn Door> {
    let private = None;
    Arc::new(Plain { name, private })
}

/// Settings with users that serve the directory `root` in `folder`.
fn builder(folder: &Path, root: &str, doors: Vec<Arc<dyn Door>>) -> ServerBuilder {
    let root = folder.join(root);
    std::fs::create_dir_all(&root).unwrap();
    ServerBuilder {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        root,
        security: Some(ServerSecurity::new(folder.join("server"), "owner".into())),
        doors,
        ..ServerBuilder::default()
    }
}

#[test]
fn each_door_has_a_name_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let built = |names: &[&'static str]| {
        let doors = names.iter().map(|name| plain(name)).collect();
        builder(folder.path(), "root", doors)
    };
    let server = built(&["a", "b"]).bind().unwrap();
    for (names, twice) in [(&["a", "b", "a"][..], "a"), (&["xdfs"], "xdfs")] {
        let report = built(names).check();
        let settings: Vec<_> = report.faults.iter().map(|found| found.setting).collect();
        assert_eq!(settings, [twice]);
        let refused = [
            built(names).bind().map(drop).unwrap_err(),
            server.handle().reload(built(names)).unwrap_err(),
        ];
        assert!(
            refused
                .iter()
                .all(|fault| fault.code == Code::InvalidArgument)
        );
    }
}

/// Also one that the new settings don't have any more: it stays open until the next start.
#[test]
fn a_reload_reviews_the_sessions_of_every_open_door() {
    let folder = tempfile::tempdir().unwrap();
    let built = |doors| builder(folder.path(), "root", doors);
    let server = built(vec![plain("a"), plain("b")]).bind().unwrap();
    let reloaded = server.handle().reload(built(vec![plain("b"), plain("c")]));
    let reloaded = reloaded.unwrap();
    assert_eq!(reloaded.unchanged, ["a", "c"]);
    assert_eq!((reloaded.sessions_ended, reloaded.tunnels_ended), (2, 4));
}

#[test]
fn the_files_of_open_doors_stay_private() {
    let folder = tempfile::tempdir().unwrap();
    let with = |private: &str, root: &str| {
        let private = folder.path().join(private);
        std::fs::create_dir_all(&private).unwrap();
        let private = Some(private);
        let door = Plain { name: "a", private };
        builder(folder.path(), root, vec![Arc::new(door)])
    };
    assert!(with("old/key", "old").bind().is_err());
    let server = with("old/key", "root").bind().unwrap();
    for (root, is_taken) in [("old", false), ("new", false), ("other", true)] {
        let reloaded = server.handle().reload(with("new/key", root));
        assert_eq!(reloaded.is_ok(), is_taken, "{root}");
    }
}

fn failed() -> Result<(), Fault> {
    Err(Fault::new(Code::Internal, "serve", "it failed"))
}

#[test]
fn a_door_that_fails_leaves_the_others_their_time() {
    // The third one is drained by its server, and by nothing else.
    let (third, end) = mpsc::channel();
    let opened = vec![
        (plain("second"), open(|_| failed())),
        (
            plain("third"),
            open(move |drained| {
                end.recv().unwrap();
                assert!(drained.try_recv().is_err());
                Ok(())
            }),
        ),
    ];
    let first = open(move |_| {
        third.send(()).unwrap();
        Ok(())
    });
    assert_eq!(run(first, opened).unwrap_err().cause, "it failed");
}

#[test]
fn no_door_outlives_the_own_one_that_failed() {
    let waiting = open(|drained| {
        assert_eq!(drained.recv().unwrap(), Duration::ZERO);
        Ok(())
    });
    let fault = run(open(|_| failed()), vec![(plain("second"), waiting)]);
    assert_eq!(fault.unwrap_err().cause, "it failed");
}
