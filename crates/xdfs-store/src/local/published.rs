//! A target already published by an earlier attempt at the same transfer that was interrupted
//! between the rename and its answer.
//!
//! Before the rename, the journal describes the file about to be published ([`Publication`]); it is
//! removed once the name is durable. If the target is that file, a transfer from the same version
//! of the same source only has to make the name durable and report success.

use std::fs::{File, TryLockError};
use std::io::{self, IoSlice};

use xdfs_proto::digest::{Fragment, FragmentMap};
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, FileKind};

use super::journal::Publication;
use super::journal_file::{ClaimedRanges, JournalFile};
use super::partial;
use super::path::{HiddenNames, OPEN_TARGET};
use super::reread::Reread;
use super::target::Target;
use crate::{Capabilities, Sink, SinkRequest};

/// The sink of an already published target.
#[derive(Debug)]
pub(super) struct PublishedSink {
    target: Target,
    names: HiddenNames,
    file: File,
    durable: FragmentMap,
    reread: Option<Reread>,
}

/// Whether a target was published by an earlier attempt at the same transfer.
pub(super) fn is_published(
    target: &Target,
    names: &HiddenNames,
    request: &SinkRequest,
) -> Result<bool, Fault> {
    let found = find(target, names, request);
    let found = found.map_err(|error| Fault::from_io(OPEN_TARGET, &target.path, &error))?;
    Ok(found.is_some())
}

fn find(
    target: &Target,
    names: &HiddenNames,
    request: &SinkRequest,
) -> io::Result<Option<ClaimedRanges>> {
    let Some(meta) = target.dir.meta_of(&target.name)? else {
        return Ok(None);
    };
    if meta.kind != FileKind::Regular {
        return Ok(None);
    }
    let found = JournalFile::publication(&target.dir, names, request)?;
    let Some((publication, claimed)) = found else {
        return Ok(None);
    };
    let there = Publication {
        length: meta.length,
        identity: meta.identity.unwrap_or_default(),
        mtime_ns: meta.mtime_ns,
    };
    let is_that = there == publication && meta.identity.is_some();
    Ok(is_that.then_some(claimed))
}

impl PublishedSink {
    /// The sink of `target` if it is already published; otherwise returns the target.
    pub(super) fn open(
        target: Target,
        names: &HiddenNames,
        request: &SinkRequest,
    ) -> Result<Result<Self, Target>, Fault> {
        let fault = |error: &io::Error| Fault::from_io(OPEN_TARGET, &target.path, error);
        if find(&target, names, request)
            .map_err(|e| fault(&e))?
            .is_none()
        {
            return Ok(Err(target));
        }
        // A target without write permission is not used any further.
        let Ok(file) = target.dir.open_name(&target.name) else {
            return Ok(Err(target));
        };
        // The process that is publishing it may still be running.
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(partial::busy(&target));
        }
        let found = find(&target, names, request).map_err(|e| fault(&e))?;
        let opened = fs::meta(&file).map_err(|e| fault(&e))?.identity;
        let named = target.dir.meta_of(&target.name).map_err(|e| fault(&e))?;
        let is_same = named.is_some_and(|named| named.identity == opened);
        let Some((durable, records, unverified)) = found.filter(|_| is_same) else {
            return Ok(Err(target));
        };
        let kind = durable.kind();
        Ok(Ok(Self {
            target,
            names: names.clone(),
            file,
            durable,
            reread: unverified.then(|| Reread::new(kind, records)),
        }))
    }

    /// The path that is published.
    pub(super) fn path(&self) -> &[u8] {
        &self.target.path
    }

    /// All of its fragments.
    pub(super) fn durable(&self) -> Vec<Fragment> {
        self.durable.fragments().copied().collect()
    }

    /// Whether it must be reread.
    pub(super) fn is_unverified(&self) -> bool {
        self.reread.is_some()
    }

    fn fault(&self, error: &io::Error) -> Fault {
        Fault::from_io("publish", &self.target.path, error)
    }

    fn refusal(&self) -> Fault {
        let cause = "the file is already published";
        Fault::new(Code::Internal, "write", cause).path(&self.target.path)
    }
}

impl Sink for PublishedSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: true,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, _: u64, _: &[IoSlice<'_>]) -> Result<(), Fault> {
        Err(self.refusal())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        if let Some(reread) = &mut self.reread
            && reread.step(&self.file)
        {
            return Ok(None);
        }
        let (sound, wrong) = match self.reread.take() {
            Some(reread) => reread.finish(),
            None => (self.durable.clone(), 0),
        };
        if wrong > 0 {
            // It is of no use to later attempts.
            let _ = JournalFile::remove(&self.target.dir, &self.names);
            let cause = format!(
                "an earlier attempt published it, and {wrong} bytes of it have changed since"
            );
            return Err(
                Fault::new(Code::IntegrityMismatch, "verify the target", cause)
                    .path(&self.target.path)
                    .hint("use --force to replace it"),
            );
        }
        self.durable = sound;
        Ok(Some(self.durable()))
    }

    fn read_back(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        fs::read_at(&self.file, buf, offset).map_err(|error| self.fault(&error))
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        match durable {
            [] => Ok(()),
            _ => Err(self.refusal()),
        }
    }

    fn publish(&mut self, _length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        if self.reread.is_some() || !fresh.is_empty() {
            return Err(self.refusal());
        }
        self.target.dir.sync().map_err(|error| self.fault(&error))?;
        // If it stays, it is recognised again, or removed by the next transfer to this name.
        let _ = JournalFile::remove(&self.target.dir, &self.names);
        Ok(())
    }

    /// Keeps the target, which has its name already.
    fn discard(&mut self) -> Result<(), Fault> {
        JournalFile::remove(&self.target.dir, &self.names).map_err(|error| self.fault(&error))?;
        Ok(())
    }

    crate::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, shared);
}

impl Drop for PublishedSink {
    fn drop(&mut self) {
        partial::unlock(&self.file);
    }
}
