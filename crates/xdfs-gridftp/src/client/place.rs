//! A server as a place among others.

use std::any::Any;
use std::sync::Arc;

use xdfs_proto::{ChecksumKind, Code, Fault};
use xdfs_store::place::{DirectRequest, Directly};
use xdfs_store::{Place, Store, Traits};

use super::pool::FtpStore;

/// The traits of servers of FTP, with GridFTP or without. FTP knows files by their names, sizes and
/// times only.
pub const TRAITS: Traits = Traits {
    stripes: true,
    ..Traits::NONE
};

impl Place for FtpStore {
    fn connect(&self) -> Result<(), Fault> {
        self.connect_first()
    }

    fn is_far(&self) -> bool {
        self.is_far_away()
    }

    fn computes(&self, kind: ChecksumKind) -> bool {
        self.has_checksum(kind)
    }

    fn takes_password(&self) -> bool {
        self.logs_in_by_password()
    }

    fn resumes_download(&self) -> bool {
        self.can_resume_downloads()
    }

    fn resumes_upload(&self, bytes: Option<u64>) -> bool {
        self.can_resume_upload(bytes)
    }

    fn begin_tree(&self, path: &[u8]) -> bool {
        self.ask_for_tree(path)
    }

    fn end_tree(&self) {
        self.forget_tree();
    }

    fn comparing(&self, source: &[u8], target: Arc<dyn Store>) -> Arc<dyn Store> {
        self.comparing_target(source, target)
    }

    fn receive_from(
        &self,
        source: &dyn Place,
        request: &DirectRequest,
        moved: &mut dyn FnMut(u64, u64),
    ) -> Result<Directly, Fault> {
        let source: &dyn Any = source;
        match source.downcast_ref::<Self>() {
            Some(source) => self.receive(source, request, moved),
            None => Ok(Directly::Impossible {
                why: Fault::new(
                    Code::Unsupported,
                    "copy",
                    "only two FTP servers can do that",
                ),
                is_certain: true,
            }),
        }
    }

    fn reconnect(&self) -> Result<(), Fault> {
        self.connect_again()
    }

    fn close(&self) {
        self.end();
    }
}
