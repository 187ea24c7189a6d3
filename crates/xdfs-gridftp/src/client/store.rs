//! The files of a server as a store.

use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Call, FileKind};
use xdfs_proto::{Code, Fault};
use xdfs_store::{OpenedSink, PackOptions, SinkRequest, Source, Store};

use super::fault::lacking;
use super::fresh::settled;
use super::link::Link;
use super::listed::Listed;
use super::pool::FtpStore;
use super::resumed::version;
use super::sink::FtpSink;
use super::source::FtpSource;
use super::{call, pack};

/// The file at a resolved path, as it is when it may be read.
///
/// # Errors
/// It is a directory, still being written, or the server doesn't tell enough about it.
pub(super) fn readable(link: &mut Link, path: &[u8], is_compared: bool) -> Result<Listed, Fault> {
    let listed = FtpStore::look(link, path)?;
    let listed = settled(link, path, listed, is_compared)?;
    match listed.attributes.kind {
        FileKind::Directory => {
            let cause = "it is a directory";
            Err(Fault::new(Code::IsDirectory, "open the source", cause)
                .path(path)
                .hint("use -r to copy directories"))
        }
        _ if !listed.has_size => {
            let cause = "the server doesn't tell its size, so that nothing could be verified";
            Err(lacking("open the source", path, cause))
        }
        _ => Ok(listed),
    }
}

impl Store for FtpStore {
    fn is_slow(&self) -> bool {
        true
    }

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        let (path, listed, tag) = self.with(|link| {
            let path = Self::resolve(link, path);
            let is_compared = link.features.checksum().is_some();
            let mut listed = readable(link, &path, is_compared)?;
            self.told().complete(&path, &mut listed);
            let tag = version(self, link, &path, &listed);
            Ok((path, listed, tag))
        })?;
        Ok(Box::new(FtpSource::new(self.clone(), path, &listed, tag)))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.told().clear();
        self.files().clear();
        FtpSink::open(self.clone(), self.check_sink(request)?, request)
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        self.with(|link| Self::target(link, request))
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        pack::read(self, root, request, pack)
    }

    fn write_pack(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        self.told().clear();
        pack::write(self, root, options, pack)
    }

    fn packs_wait(&self, _root: &[u8]) -> bool {
        // Logins by ssh take more time than more connections save.
        !self.is_carried()
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        call::answer(self, call, part).map_err(|fault| match fault.operation.is_empty() {
            true => Fault {
                operation: call.operation().to_owned(),
                ..fault
            },
            false => fault,
        })
    }

    xdfs_store::defaults!(Store: open_file);
}
