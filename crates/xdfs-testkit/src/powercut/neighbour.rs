//! Another program on the same file system.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Writes a little and synchronises it, again and again, until it is dropped.
///
/// A file system that journals makes more durable than it was asked for: the sizes and names of
/// other files, for example, before their content. Without a neighbour nearly all moments of a
/// short run are alike.
#[derive(Debug)]
pub struct Neighbour {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    /// Starts on a file of its own. With `whole` it synchronises the whole file system, as the
    /// program `sync` does, else its file alone.
    ///
    /// # Errors
    /// The file can't be made.
    pub fn start(path: &Path, pause: Duration, whole: bool) -> io::Result<Self> {
        let file = File::create(path)?;
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut number = 0_u64;
            while !seen.load(Ordering::Relaxed) {
                number += 1;
                // On a disk that fails there is nothing to be done by a neighbour.
                let _ = file.write_all_at(&number.to_le_bytes(), 0);
                if whole {
                    let _ = rustix::fs::syncfs(&file);
                } else {
                    let _ = file.sync_all();
                }
                thread::sleep(pause);
            }
        });
        Ok(Self {
            ends,
            thread: Some(thread),
        })
    }

    /// Tells it to end, without waiting.
    pub fn ask_to_end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.ask_to_end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
