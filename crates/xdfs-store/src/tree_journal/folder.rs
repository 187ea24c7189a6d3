//! The folder of tree journals: a file per tree, named by its key, and removed after some time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xdfs_proto::Fault;

use super::{Earlier, TreeJournal, path_bytes};

/// Journals not used for this long are removed.
const AGE_MAX: Duration = Duration::from_secs(60 * 24 * 60 * 60);
/// The same for journals of runs that left nothing to do. From these, the same command knows what
/// it did if its end was not reported: after a lost connection to the machine, or a power cut.
const ENDED_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Prefix and suffix of journal names.
const NAME: (&str, &str) = ("tree-", ".journal");
/// Extension of journals of runs that left nothing to do.
pub(super) const ENDED: &str = "ended";

/// The place of one tree's journal.
#[derive(Debug)]
pub struct JournalPlace<'f> {
    folder: &'f Path,
    path: PathBuf,
    key: [u8; 32],
}

impl<'f> JournalPlace<'f> {
    /// The place for the tree that `key` identifies.
    #[must_use]
    pub fn new(folder: &'f Path, key: [u8; 32]) -> Self {
        let hex: String = key[..16].iter().map(|b| format!("{b:02x}")).collect();
        let path = folder.join(format!("{}{hex}{}", NAME.0, NAME.1));
        Self { folder, path, key }
    }

    /// Opens the journal for a new run, as [`TreeJournal::open`] does, and removes journals that
    /// are too old. The folder is created if necessary.
    ///
    /// # Errors
    /// As [`TreeJournal::open`].
    pub fn open(&self, nonce: [u8; 16], anew: bool) -> Result<(TreeJournal, Earlier), Fault> {
        self.make_folder()?;
        self.remove_old();
        let was_whole = self.take_ended();
        let (mut journal, mut earlier) = TreeJournal::open(&self.path, self.key, nonce, anew)?;
        journal.begin_run()?;
        earlier.begin_run();
        earlier.was_whole = was_whole && earlier.has_run;
        Ok((journal, earlier))
    }

    /// Whether there is a journal of an earlier run. With `anew` it is removed if possible.
    #[must_use]
    pub fn is_left(&self, anew: bool) -> bool {
        let Ok(meta) = fs::symlink_metadata(&self.path) else {
            return false;
        };
        // An empty file is a journal that could not be begun, or was cleared.
        !((anew || meta.len() == 0) && fs::remove_file(&self.path).is_ok()) && meta.len() > 0
    }

    fn make_folder(&self) -> Result<(), Fault> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let made = builder.create(self.folder);
        made.map_err(|e| Fault::from_io("make the folder of journals", path_bytes(self.folder), &e))
    }

    /// Takes over the journal of a run that left nothing to do, unless there is one of a later run.
    fn take_ended(&self) -> bool {
        let ended = self.path.with_extension(ENDED);
        // Unlike a rename, a link doesn't replace a journal created concurrently.
        let is_taken = fs::hard_link(&ended, &self.path).is_ok();
        let _ = fs::remove_file(ended);
        is_taken
    }

    fn remove_old(&self) {
        let Ok(entries) = fs::read_dir(self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_ended = path.extension().is_some_and(|end| end == ENDED);
            let is_ours = name.starts_with(NAME.0) && (is_ended || name.contains(NAME.1));
            let age_max = if is_ended { ENDED_AGE_MAX } else { AGE_MAX };
            let age = entry.metadata().and_then(|m| m.modified());
            let is_old = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > age_max));
            // A journal in use has been written recently or, for a very long run, is locked.
            if is_ours && is_old && (path == self.path || is_free(&path)) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn is_free(path: &Path) -> bool {
    fs::File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}
