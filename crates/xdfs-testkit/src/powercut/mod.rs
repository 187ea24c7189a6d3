//! Power cuts: disks that forget, with real file systems on them.
//!
//! A [`Disk`] is one file of a FUSE file system, on which the kernel's loop device lets ext4, XFS
//! or Btrfs be mounted. It has a volatile cache, as real disks do: what was written since the last
//! flush survives a cut only by chance, each sector by itself. Everything above it is real: the
//! page cache, the journal, `fsync` and `syncfs`, and the recovery at the next mount. It can also
//! answer an error, once.
//!
//! [`Image`] is the content of a disk, [`Kind`] formats one, [`Volume`] mounts one, and
//! [`Neighbour`] is another program that uses the same file system. [`confined`] runs a test where
//! all mounts and processes end with it.

mod command;
mod disk;
mod image;
mod neighbour;
mod volume;

use std::io;
use std::path::Path;
use std::process::Command;

pub use disk::{Disk, Disks, Plan};
pub use image::Image;
pub use neighbour::Neighbour;
pub use volume::{Kind, Volume};

/// Why no power can be cut on this machine by this user; `None` if it can.
#[must_use]
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can mount a disk".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        let device = Path::new(device);
        let opened = std::fs::File::options().read(true).write(true).open(device);
        if let Err(error) = opened {
            return Some(format!("{}: {error}", device.display()));
        }
    }
    if Kind::ALL.into_iter().all(|kind| !kind.is_installed()) {
        return Some("there is none of mkfs.ext4, mkfs.xfs and mkfs.btrfs".into());
    }
    let tried = confined(Command::new("true")).and_then(|mut command| command.status());
    match tried {
        Ok(status) if status.success() => None,
        Ok(status) => Some(format!("`unshare` ended with {status}")),
        Err(error) => Some(format!("`unshare`: {error}")),
    }
}

/// The same command in namespaces of its own: what it mounts nobody else sees, and when it ends,
/// however that comes, its children end and its mounts are gone.
///
/// # Errors
/// The command has settings other than arguments and variables.
pub fn confined(command: Command) -> io::Result<Command> {
    if command.get_current_dir().is_some() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut confined = Command::new("unshare");
    confined.args(["--mount", "--propagation", "private", "--pid", "--fork"]);
    confined.args(["--kill-child", "--mount-proc", "--"]);
    confined.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => confined.env(name, value),
            None => confined.env_remove(name),
        };
    }
    Ok(confined)
}
