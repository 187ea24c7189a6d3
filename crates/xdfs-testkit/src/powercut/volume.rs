//! Real file systems on images.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::command::run;
use crate::wait;

/// The one superblock of ext4, with what stands before it.
const EXT4_SUPERBLOCK: Range<u64> = 0..4096;

/// How long something may hold a file system that is to be unmounted.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most that is written by one request. FUSE passes on at least so much at once.
const REQUEST_KIBIBYTES_MAX: &str = "64";

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

    /// Where its superblocks are that no journal covers. They are larger than a sector, and it
    /// relies on each being written wholly or not at all.
    #[must_use]
    pub fn superblocks(self) -> &'static [Range<u64>] {
        match self {
            Self::Ext4 => std::slice::from_ref(&EXT4_SUPERBLOCK),
            Self::Xfs => &[],
            Self::Btrfs => &[0x1_0000..0x1_1000, 0x400_0000..0x400_1000],
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
        let volume = Self {
            at: at.to_owned(),
            is_mounted: true,
        };
        volume.bound_requests()?;
        Ok(volume)
    }

    /// Bounds what the kernel asks of the disk at once to what FUSE passes on in one piece. The
    /// loop device takes a request of which a part was written for done, so that an error of a
    /// later part would be told to nobody.
    fn bound_requests(&self) -> io::Result<()> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let at = self.at.to_string_lossy();
        let mount = mounts
            .lines()
            .find(|line| line.split(' ').nth(4) == Some(&at));
        let source = mount.and_then(|line| line.split(" - ").nth(1)?.split(' ').nth(1));
        let name = source.and_then(|source| source.strip_prefix("/dev/"));
        let name = name.ok_or_else(|| io::Error::other(format!("{at} is not a loop device")))?;
        let path = format!("/sys/block/{name}/queue/max_sectors_kb");
        std::fs::write(path, REQUEST_KIBIBYTES_MAX)
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
