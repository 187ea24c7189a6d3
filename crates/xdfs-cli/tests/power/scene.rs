//! What all rounds share: sources, formatted disks and the place where they are mounted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use xdfs_testkit::powercut::{Disks, Image, Kind, Volume};
use xdfs_testkit::process::Guard;

use crate::content::{self, Tree};

/// Longest time that any one program may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Scene {
    // Dropped first: it is mounted in the folder.
    pub(crate) disks: Disks,
    program: PathBuf,
    prepared: BTreeMap<(Kind, Option<&'static str>), Image>,
    trees: BTreeMap<&'static str, Tree>,
    folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["disks", "hot", "cold", "config", "sources"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        content::make(&folder.path().join("sources"));
        Self {
            disks: Disks::mount(&folder.path().join("disks")).unwrap(),
            program: program.to_owned(),
            prepared: BTreeMap::new(),
            trees: BTreeMap::new(),
            folder,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a source holds.
    pub(crate) fn tree(&mut self, name: &'static str) -> Tree {
        let path = self.path("sources").join(name);
        let tree = self.trees.entry(name);
        tree.or_insert_with(|| Tree::read(&path).unwrap()).clone()
    }

    /// Makes the folders of both sides beneath `at`, with what is to be at their targets.
    pub(crate) fn fill(&self, at: &Path, old: Option<&str>) {
        for side in ["root", "here", "state"] {
            let side = at.join(side);
            std::fs::create_dir(&side).unwrap();
            if let Some(old) = old {
                let old = self.path("sources").join(old);
                let mut copy = Command::new("cp");
                copy.arg("-a").arg(old).arg(side.join("copy"));
                assert!(copy.status().unwrap().success());
            }
        }
    }

    /// A disk with a file system that [`Self::fill`] has filled.
    pub(crate) fn prepared(&mut self, kind: Kind, old: Option<&'static str>) -> Image {
        if let Some(image) = self.prepared.get(&(kind, old)) {
            return image.clone();
        }
        let path = self.path("prepared");
        kind.format(&path).unwrap();
        let hot = self.path("hot");
        let volume = Volume::mount(kind, &path, &hot).unwrap();
        self.fill(&hot, old);
        volume.unmount().unwrap();
        let image = Image::load(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        self.prepared.insert((kind, old), image.clone());
        image
    }

    /// The program, with the state of its user in `state`.
    pub(crate) fn program(&self, state: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.env("NO_COLOR", "1").env("TERM", "dumb");
        command.env("XDFS_CONFIG_DIR", self.path("config"));
        command.env("XDFS_STATE_DIR", state);
        for name in ["BEARER_TOKEN", "BEARER_TOKEN_FILE", "SSH_AUTH_SOCK", "HOME"] {
            command.env_remove(name);
        }
        command
    }

    /// Starts a server, on the addresses of one that was killed if there is one; with `gridftp` for
    /// GridFTP too.
    pub(crate) fn serve(
        &self,
        root: &Path,
        address: &mut String,
        gridftp: Option<&mut String>,
    ) -> Result<Guard, String> {
        let start = Instant::now();
        loop {
            let mut command = self.program(&self.path("config"));
            command.args(["serve", "--insecure", "--listen", address]);
            if let Some(gridftp) = &gridftp {
                command.args(["--gridftp", gridftp]);
            }
            let server = Guard::spawn(command.arg("--root").arg(root)).unwrap();
            let told = |what| {
                let told = |line: &str| line.strip_prefix(what).map(str::to_owned);
                server.line(PATIENCE, told)
            };
            // It ends at once if an address is still taken.
            let listens = told("listening on ");
            let other = gridftp.as_ref().and_then(|_| told("GridFTP on "));
            if let Some(listens) = listens
                && other.is_some() == gridftp.is_some()
            {
                *address = listens;
                if let (Some(gridftp), Some(other)) = (gridftp, other) {
                    *gridftp = other;
                }
                return Ok(server);
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the server did not start: {:?}", server.output()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
