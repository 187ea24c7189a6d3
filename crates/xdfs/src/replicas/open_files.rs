//! The open files of a place: the targets of their copies need what their readers have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::join::Sources;
use super::shared::Shared;

/// The open files by their paths, each the latest that was opened there, and their sources.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenFiles(Arc<Mutex<HashMap<Vec<u8>, OpenFile>>>);

type OpenFile = (Weak<Shared>, Sources);

impl OpenFiles {
    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, OpenFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file, for as long as it is open.
    pub(super) fn insert(&self, path: &[u8], shared: &Arc<Shared>, sources: Sources) {
        let mut open = self.lock();
        open.retain(|_, (shared, _)| shared.strong_count() > 0);
        open.insert(path.to_vec(), (Arc::downgrade(shared), sources));
    }

    /// An open file, and its sources.
    pub(super) fn find(&self, path: &[u8]) -> Option<(Arc<Shared>, Sources)> {
        let open = self.lock();
        let (shared, sources) = open.get(path)?;
        Some((shared.upgrade()?, sources.clone()))
    }

    /// Closes all.
    pub(super) fn close(&self) {
        let open: Vec<_> = self.lock().drain().collect();
        for (_, (shared, _)) in open {
            shared.upgrade().inspect(|shared| shared.close());
        }
    }
}
