//! Whether the file systems of exports are mounted: what lies beneath a mount point is never served
//! in place of what was mounted there.
//!
//! The deepest mount point at or above the directory of an export is remembered, from the start of
//! the server on. While nothing is mounted there, or the directory is on another device elsewhere,
//! the export is refused. An export that demands its mount is refused while its directory isn't a
//! mount point itself, even if it never was one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::{Code, Fault};
use xdfs_sys::mount;

/// The operation of faults.
pub(super) const OPEN: &str = "open the export";

/// The state of the directories of exports.
#[derive(Debug, Default)]
pub(super) struct Mounts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: HashMap<PathBuf, Place>,
    /// The exports that are refused: the log says so once.
    refused: HashSet<PathBuf>,
}

/// Where a directory was when it was last served.
#[derive(Clone, Debug)]
struct Place {
    point: PathBuf,
    device: u64,
}

impl Mounts {
    /// Checks that the file system of the directory of an export is mounted, at this very directory
    /// if it demands that. Returns its device, if it is there and the system tells it.
    ///
    /// # Errors
    /// It isn't mounted. The fault contains no path: clients must not learn the server's paths.
    pub(super) fn check(&self, directory: &Path, demands: bool) -> Result<Option<u64>, Fault> {
        // The lock isn't held meanwhile: a file system that doesn't answer must not stop the
        // sessions on others.
        let (known, was_refused) = {
            let state = self.state();
            let known = state.known.get(directory).cloned();
            (known, state.refused.contains(directory))
        };
        if let Some(place) = &known
            && !is_mounted(&place.point)
        {
            return Err(self.refuse(directory, &place.point));
        }
        if demands && !is_point(directory) {
            return Err(self.refuse(directory, directory));
        }
        // A missing directory is reported when it is opened.
        let device = mount::device(directory).ok();
        if let Some(device) = device
            && known.as_ref().is_none_or(|place| place.device != device)
            && let Ok(point) = mount::point_above(directory)
        {
            if let Some(place) = &known
                && !point.starts_with(&place.point)
            {
                return Err(self.refuse(directory, &place.point));
            }
            let place = Place { point, device };
            self.state().known.insert(directory.to_owned(), place);
        }
        if was_refused && self.state().refused.remove(directory) {
            tracing::info!(path = %shown(directory), "an export is served again");
        }
        Ok(device)
    }

    /// The fault of an export whose file system should be mounted at `point`.
    fn refuse(&self, directory: &Path, point: &Path) -> Fault {
        if self.state().refused.insert(directory.to_owned()) {
            let (path, point) = (shown(directory), shown(point));
            tracing::warn!(%path, %point, "an export is refused: its file system isn't mounted");
        }
        let fault = Fault::new(
            Code::Io,
            OPEN,
            "its file system isn't mounted at the server",
        );
        fault.hint("tell the server's administrator: its log has the details")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shown(path: &Path) -> impl std::fmt::Display {
    path.as_os_str().as_encoded_bytes().escape_ascii()
}

/// Whether something is mounted at a point where something was. Who may not look there can't open
/// the directory either.
fn is_mounted(point: &Path) -> bool {
    match mount::is_point(point) {
        Ok(is_point) => is_point,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The same where nothing is known.
pub(super) fn is_point(directory: &Path) -> bool {
    mount::is_point(directory).unwrap_or(false)
}
