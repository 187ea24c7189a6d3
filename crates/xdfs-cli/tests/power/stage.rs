//! The mounted disk of one attempt, and how its power is cut.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use xdfs_testkit::powercut::{Disk, Image, Kind, Neighbour, Plan, Volume};
use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::Random;

use crate::options::Form;
use crate::scene::Scene;

/// A mounted disk with a neighbour on it.
#[derive(Debug)]
pub(crate) struct Stage {
    neighbour: Option<Neighbour>,
    volume: Volume,
    backing: Backing,
    /// When the power is cut, of a copied image.
    due: Option<Instant>,
}

#[derive(Debug)]
enum Backing {
    Disk(Disk),
    File(PathBuf),
}

impl Stage {
    /// Mounts a disk with this content, which is the recovery after a cut.
    pub(crate) fn mount(
        scene: &Scene,
        (form, kind): (Form, Kind),
        image: &Image,
        random: &mut Random,
    ) -> Result<Self, String> {
        let backing = match form {
            Form::Disk => Backing::Disk(scene.disks.add(image, kind.superblocks())),
            Form::Loop => {
                let path = scene.path("image");
                image.store(&path).unwrap();
                Backing::File(path)
            }
        };
        let path = match &backing {
            Backing::Disk(disk) => disk.path(),
            Backing::File(path) => path,
        };
        let hot = scene.path("hot");
        let volume = Volume::mount(kind, path, &hot);
        let volume = volume.map_err(|error| format!("no recovery: {error}"))?;
        let pause = Duration::from_millis(1 + random.below(20));
        let neighbour = match random.below(4) {
            0 => None,
            way => Some(Neighbour::start(&hot.join("neighbour"), pause, way == 1)),
        };
        Ok(Self {
            neighbour: neighbour
                .transpose()
                .map_err(|e| format!("a neighbour: {e}"))?,
            volume,
            backing,
            due: None,
        })
    }

    /// Lets the plan begin; a copied image is taken after `time`.
    pub(crate) fn begin(&mut self, plan: Plan, time: Option<Duration>) {
        match &self.backing {
            Backing::Disk(disk) => disk.begin(plan),
            Backing::File(_) => self.due = time.map(|time| Instant::now() + time),
        }
    }

    /// Whether the power is to be cut, or was.
    pub(crate) fn is_cut(&self) -> bool {
        match &self.backing {
            Backing::Disk(disk) => disk.is_cut(),
            Backing::File(_) => self.due.is_some_and(|due| Instant::now() >= due),
        }
    }

    /// Writes and flushes so far.
    pub(crate) fn events(&self) -> u64 {
        match &self.backing {
            Backing::Disk(disk) => disk.events(),
            Backing::File(_) => 0,
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(&self.backing, Backing::Disk(disk) if disk.has_failed())
    }

    /// Cuts the power, which ends the `doomed` programs, and answers what is left on the disk.
    pub(crate) fn cut(self, doomed: Vec<&mut Guard>) -> Image {
        if let Backing::Disk(disk) = &self.backing {
            disk.cut();
        }
        self.end(doomed)
    }

    /// Ends these programs and unmounts the disk; if there was no cut, all is written.
    pub(crate) fn end(self, doomed: Vec<&mut Guard>) -> Image {
        if let Some(neighbour) = &self.neighbour {
            neighbour.ask_to_end();
        }
        let mut doomed = doomed;
        for program in &mut doomed {
            program.begin_to_kill().unwrap();
        }
        if let Backing::Disk(disk) = &self.backing
            && disk.is_cut()
        {
            disk.release();
        }
        for program in &mut doomed {
            program.kill().unwrap();
        }
        match self.backing {
            Backing::Disk(disk) => {
                drop(self.neighbour);
                self.volume.unmount().unwrap();
                disk.image()
            }
            Backing::File(path) => {
                // Nothing writes any more but the kernel: two copies that are equal show a state
                // that was on the disk at one moment.
                drop(self.neighbour);
                let mut image = Image::load(&path).unwrap();
                loop {
                    let again = Image::load(&path).unwrap();
                    if again == image {
                        break;
                    }
                    image = again;
                }
                self.volume.unmount().unwrap();
                std::fs::remove_file(path).unwrap();
                image
            }
        }
    }
}
