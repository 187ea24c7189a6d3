//! The store in front of a set: one file.

use std::sync::Arc;

use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{Fault, SourceTag};
use xdfs_store::{Place, Source, SourceInfo, Store};

use super::fetch;
use super::join::{Joined, Joining, Sources};
use super::open_files::OpenFiles;
use super::resumed::Target;
use super::shared::Shared;

/// Opens the file of these sources, as one of the open files of a place.
pub(super) fn open(
    files: &OpenFiles,
    path: &[u8],
    sources: Sources,
) -> Result<Box<dyn Source>, Fault> {
    let mut joining = Joining::begin(sources.clone());
    let joined = joining.wait()?;
    let found = joined[0].found.clone();
    let tag = sources.tag(found.size);
    let shared = fetch::start(joining, joined, found.size)?;
    files.insert(path, &shared, sources);
    Ok(Box::new(ReplicaSource {
        shared,
        info: SourceInfo {
            length: Some(found.size),
            tag,
            mode: Some(found.mode & 0o777),
            mtime_ns: found.mtime(),
            random_reads: true,
            sparse: false,
        },
    }))
}

/// The store of the target of a file that is open.
pub(super) fn comparing(files: &OpenFiles, path: &[u8], store: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(Target {
        files: files.clone(),
        path: path.to_vec(),
        store,
    })
}

/// The file of a set of replicas.
#[derive(Debug)]
pub(super) struct ReplicaPlace {
    sources: Sources,
    /// It is the only one, whatever its path.
    files: OpenFiles,
}

impl ReplicaPlace {
    pub(super) fn new(sources: Sources) -> Self {
        Self {
            sources,
            files: OpenFiles::default(),
        }
    }

    /// The source that is believed first, of those that can be reached.
    fn first(&self) -> Result<Joined, Fault> {
        self.sources.log.begin_again();
        let mut joined = Joining::begin(self.sources.clone()).wait()?;
        Ok(joined.remove(0))
    }
}

impl Sources {
    /// The tag by which an earlier attempt is recognised. Without a version, its bytes are compared
    /// by their content, so nothing of the sources is in the tag: the next attempt may have others.
    fn tag(&self, length: u64) -> SourceTag {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"replicas");
        hasher.update(&length.to_be_bytes());
        if let Some(version) = self.set.version {
            hasher.update(b"version");
            hasher.update(&version.inode.to_be_bytes());
            hasher.update(&version.mtime_ns.to_be_bytes());
            hasher.update(&version.ctime_ns.to_be_bytes());
        }
        let mut tag = [0; 16];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        SourceTag(tag)
    }
}

impl Store for ReplicaPlace {
    fn is_slow(&self) -> bool {
        true
    }

    fn open_source(&self, _: &[u8]) -> Result<Box<dyn Source>, Fault> {
        self.sources.log.begin_again();
        open(&self.files, b"", self.sources.clone())
    }

    fn call(
        &self,
        call: &Call,
        _: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        match call {
            Call::Stat { .. } => Ok(Answer::Attributes(self.first()?.found)),
            Call::Checksum {
                offset,
                length,
                kind,
                ..
            } => {
                let first = self.first()?;
                first.client.call(Call::Checksum {
                    path: self.sources.path(first.number).to_vec(),
                    offset: *offset,
                    length: *length,
                    kind: *kind,
                })
            }
            call => {
                let path = call.path();
                Err(xdfs_store::layer::no_names(call.operation(), path))
            }
        }
    }

    xdfs_store::defaults!(Store: open_sink, check_sink, read_pack, write_pack, packs_wait,
        open_file);
}

impl Place for ReplicaPlace {
    fn resumes_download(&self) -> bool {
        true
    }

    fn comparing(&self, _: &[u8], target: Arc<dyn Store>) -> Arc<dyn Store> {
        comparing(&self.files, b"", target)
    }

    fn close(&self) {
        self.files.close();
        self.sources.stop();
    }
}

/// The open file.
#[derive(Debug)]
struct ReplicaSource {
    shared: Arc<Shared>,
    info: SourceInfo,
}

impl Source for ReplicaSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.info.length.unwrap_or(0).saturating_sub(offset);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let mut filled = 0;
        while filled < most {
            let at = offset + filled as u64;
            filled += self.shared.read(at, &mut buf[filled..most])?;
        }
        Ok(filled)
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        // Each of its blocks was compared, or its version.
        Ok(())
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, memory, is_uniform,
        shared);
}

impl Drop for ReplicaSource {
    fn drop(&mut self) {
        self.shared.close();
    }
}
