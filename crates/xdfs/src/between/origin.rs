//! The server of a source, as a store that the session with the target reads.

use std::sync::Arc;

use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{Code, Fault, Retry, SourceTag};
use xdfs_store::{Source, SourceInfo, Store};

use super::ServerFile;
use crate::client::Client;
use crate::files::{OpenOptions, RemoteFile};

/// The files of the server of a source.
#[derive(Debug)]
pub(crate) struct Origin(pub(crate) ServerFile);

impl Store for Origin {
    fn is_slow(&self) -> bool {
        true
    }

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        let client = self.0.client()?;
        let opened = match client.behind() {
            Some(place) => place.open_source(path),
            None => {
                SessionSource::open(Arc::clone(&client), path).map(|source| Box::new(source) as _)
            }
        };
        let source = opened.map_err(|fault| self.0.named(fault))?;
        let mut info = source.info().clone();
        if !client.traits().versions {
            // What an earlier attempt has left at the target can't be compared from here.
            info.tag = SourceTag::default();
        }
        Ok(Box::new(NamedSource {
            source,
            info,
            file: self.0.clone(),
        }))
    }

    fn call(
        &self,
        call: &Call,
        _part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let answer = self.0.client()?.call(call.clone());
        answer.map_err(|fault| self.0.named(fault))
    }

    xdfs_store::defaults!(Store: open_sink, check_sink, read_pack, write_pack, packs_wait,
        open_file);
}

/// A source whose faults say at which server they happened.
#[derive(Debug)]
struct NamedSource {
    source: Box<dyn Source>,
    info: SourceInfo,
    file: ServerFile,
}

impl Source for NamedSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let read = self.source.read_at(offset, buf);
        read.map_err(|fault| self.file.named(fault))
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        let verified = self.source.verify_unchanged();
        verified.map_err(|fault| self.file.named(fault))
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, memory, is_uniform,
        shared);
}

/// A file that is read in a session. It outlives broken sessions, as open files do.
#[derive(Debug)]
struct SessionSource {
    client: Arc<Client>,
    path: Vec<u8>,
    file: RemoteFile,
    found: Attributes,
    info: SourceInfo,
}

impl SessionSource {
    fn open(client: Arc<Client>, path: &[u8]) -> Result<Self, Fault> {
        let found = look(&client, path)?;
        match found.kind {
            FileKind::File => {}
            FileKind::Directory => {
                let cause = "it is a directory";
                return Err(Fault::new(Code::IsDirectory, "open the source", cause)
                    .path(path)
                    .remote());
            }
            _ => {
                let cause = "it is no file";
                let fault = Fault::new(Code::Unsupported, "open the source", cause);
                return Err(fault.path(path).remote());
            }
        }
        let file = client.open_file(path, &OpenOptions::reading())?;
        let info = SourceInfo {
            length: Some(found.size),
            tag: tag(&found),
            mode: Some(found.mode & 0o777),
            mtime_ns: found.mtime(),
            random_reads: true,
            sparse: false,
        };
        Ok(Self {
            client,
            path: path.to_vec(),
            file,
            found,
            info,
        })
    }
}

/// What a path leads to, links followed.
pub(super) fn look(client: &Client, path: &[u8]) -> Result<Attributes, Fault> {
    let call = Call::Stat {
        path: path.to_vec(),
        follow: true,
    };
    match client.call(call)? {
        Answer::Attributes(attributes) => Ok(attributes),
        // The engine lets nothing else through.
        _ => Err(Fault::new(Code::Internal, "look at", "another answer").path(path)),
    }
}

/// What is different in another version.
fn version(of: &Attributes) -> [u64; 5] {
    let times = [of.mtime_ns, of.ctime_ns].map(i64::cast_unsigned);
    [of.device, of.inode, of.size, times[0], times[1]]
}

/// Identifies the version, as the tag of a local file does.
fn tag(of: &Attributes) -> SourceTag {
    let bytes = version(of).map(u64::to_be_bytes).concat();
    let mut tag = [0; 16];
    tag.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..16]);
    SourceTag(tag)
}

impl Source for SessionSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.found.size.saturating_sub(offset);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let mut filled = 0;
        while filled < most {
            let at = offset + filled as u64;
            let count = self.file.read_forward(at, &mut buf[filled..most])?;
            if count == 0 {
                let cause = "it has become shorter";
                return Err(Fault::new(Code::SourceChanged, "read the source", cause)
                    .path(&self.path)
                    .retry(Retry::Now));
            }
            filled += count;
        }
        Ok(filled)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        if version(&look(&self.client, &self.path)?) == version(&self.found) {
            return Ok(());
        }
        let cause = "it has changed meanwhile";
        Err(Fault::new(Code::SourceChanged, "verify the source", cause)
            .path(&self.path)
            .retry(Retry::Now))
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
        is_uniform, shared);
}
