//! Real file systems on images.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::run;
use crate::wait;

/// How long something may hold a file system that is to be unmounted.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file system of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The one that most have.
    Ext4,
    /// The one of large disks.
    Xfs,
    /// The one that writes nothing in place.
    Btrfs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// Its name for `mount`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Whether this machine can make one.
    #[must_use]
    pub fn is_installed(self) -> bool {
        Command::new(format!("mkfs.{}", self.name()))
            .arg("-V")
            .output()
            .is_ok()
    }

    /// What a disk writes wholly or not at all, in bytes. Btrfs relies on its superblock of 4096
    /// bytes being written so; the others on sectors.
    #[must_use]
    pub fn sector_bytes(self) -> usize {
        match self {
            Self::Ext4 | Self::Xfs => 512,
            Self::Btrfs => 4096,
        }
    }

    /// Makes an empty file system in a new file.
    ///
    /// # Errors
    /// What `mkfs` says.
    pub fn format(self, path: &Path) -> io::Result<()> {
        // Near the least that each of them takes, and enough for some ten megabytes of files.
        let (megabytes, flags): (u64, &[&str]) = match self {
            Self::Ext4 => (96, &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Self::Xfs => (320, &["-q"]),
            Self::Btrfs => (256, &["-q"]),
        };
        File::create(path)?.set_len(megabytes << 20)?;
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        run(command.args(flags).arg(path))
    }
}

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
pub struct Volume {
    at: PathBuf,
    is_mounted: bool,
}

impl Volume {
    /// Mounts the file system in the file `image`, by a loop device, on a directory that is there.
    /// A journal that was left is replayed.
    ///
    /// # Errors
    /// What `mount` says.
    pub fn mount(kind: Kind, image: &Path, at: &Path) -> io::Result<Self> {
        let options = match kind {
            Kind::Ext4 => "loop,noinit_itable,errors=remount-ro",
            Kind::Xfs => "loop,nouuid",
            Kind::Btrfs => "loop",
        };
        let mut command = Command::new("mount");
        command.args(["-t", kind.name(), "-o", options]);
        run(command.arg(image).arg(at))?;
        Ok(Self {
            at: at.to_owned(),
            is_mounted: true,
        })
    }

    /// Unmounts it, which writes everything.
    ///
    /// # Errors
    /// What `umount` says, if it goes on saying so for some seconds.
    pub fn unmount(mut self) -> io::Result<()> {
        let mut last = Ok(());
        // The last answer says whether it came.
        let _ = wait::until(PATIENCE, || {
            last = run(Command::new("umount").arg(&self.at));
            last.is_ok()
        });
        self.is_mounted = last.is_err();
        last
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.is_mounted {
            // Lazily, in case that a failed test still holds a file there.
            let _ = run(Command::new("umount").arg("-l").arg(&self.at));
        }
    }
}
