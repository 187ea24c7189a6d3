//! A target that an earlier attempt at the same transfer has published, without anybody having
//! heard of it: whoever did it was stopped between the rename and the answer.
//!
//! The journal says before the rename what the target will be ([`Publication`]), and goes when the
//! name is durable. Where the target is that file, a transfer from the same version of the same
//! source has nothing left to do but to make the name durable and to say so.

use std::fs::{File, TryLockError};
use std::io::{self, IoSlice};

use xdfs_proto::digest::{Fragment, FragmentMap};
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, FileKind};

use super::journal::Publication;
use super::journal_file::{Claimed, JournalFile};
use super::partial;
use super::path::{HiddenNames, OPEN_TARGET};
use super::reread::Reread;
use super::target::Target;
use crate::{Capabilities, Sink, SinkRequest};

/// The sink of a target that is published already.
#[derive(Debug)]
pub(super) struct PublishedSink {
    target: Target,
    names: HiddenNames,
    file: File,
    durable: FragmentMap,
    reread: Option<Reread>,
}

/// Whether a target is what an earlier attempt at the same transfer has published.
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
) -> io::Result<Option<Claimed>> {
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
    /// The sink of `target` if it is published already; the target comes back if it isn't.
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
        // One that the owner may not write to isn't worked on any further.
        let Ok(file) = target.dir.open_name(&target.name) else {
            return Ok(Err(target));
        };
        // Whoever publishes it may be about to say so.
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

    /// All of it.
    pub(super) fn durable(&self) -> Vec<Fragment> {
        self.durable.fragments().copied().collect()
    }

    /// Whether it has to be read again.
    pub(super) fn is_unverified(&self) -> bool {
        self.reread.is_some()
    }

    fn fault(&self, error: &io::Error) -> Fault {
        Fault::from_io("publish", &self.target.path, error)
    }

    fn refusal(&self) -> Fault {
        let cause = "the file stands under its name already";
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
            // It is no use to anybody who comes again.
            let _ = JournalFile::remove(&self.target.dir, &self.names);
            let cause = format!(
                "an earlier attempt published it, and {wrong} bytes of it are not what they were"
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
        // One that stays is recognised again, or removed by the next transfer to this name.
        let _ = JournalFile::remove(&self.target.dir, &self.names);
        Ok(())
    }

    /// Nothing of the target, which stands under its name.
    fn discard(&mut self) -> Result<(), Fault> {
        JournalFile::remove(&self.target.dir, &self.names).map_err(|error| self.fault(&error))?;
        Ok(())
    }
}

impl Drop for PublishedSink {
    fn drop(&mut self) {
        partial::unlock(&self.file);
    }
}
