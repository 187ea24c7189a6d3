//! Failures that a dry run of a copy foresees: entries in the way, and rights that are missing at
//! the target.

use xdfs_engine::command::TransferKind;
use xdfs_engine::{PackSource, UploadSpec};
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, DigestKind, Fault, SourceTag};
use xdfs_store::{LocalStore, SinkRequest, Store as _};

use super::namespace::FoundName;
use super::run::TreeRun;
use super::space::above;
use crate::paths::FileKind;
use crate::transfer::TransferOptions;

/// What was found out about a directory of the target: whether entries may be created in it, and
/// whether they may be replaced.
#[derive(Debug, Default)]
pub(super) struct CheckedRights([Option<Result<(), Fault>>; 2]);

impl TreeRun<'_> {
    /// The reason that an entry can't be copied, if it is known in advance. `there` is the kind of
    /// what has its name at the target, and `has_parent` says that its directory exists there.
    pub(super) fn foreseen(
        &self,
        found: &FoundName,
        there: Option<FileKind>,
        has_parent: bool,
        checked: &mut CheckedRights,
    ) -> Option<Fault> {
        let overwrite = self.options.overwrite;
        let refused = |code, cause| {
            let fault = Fault::new(code, "write", cause).path(&found.path);
            Some(match self.target.is_remote() {
                true => fault.remote(),
                false => fault,
            })
        };
        match there {
            None if !has_parent => return None,
            Some(FileKind::Directory) if found.is_directory => return None,
            Some(_) if found.is_directory => {
                return refused(Code::NotDirectory, "another kind of entry has this name");
            }
            Some(_) if !overwrite => return refused(Code::AlreadyExists, "the name is taken"),
            Some(FileKind::Directory) => {
                return refused(Code::IsDirectory, "a directory has this name");
            }
            _ => {}
        }
        let replaces = there.is_some();
        let checked = &mut checked.0[usize::from(replaces)];
        let checked = checked
            .get_or_insert_with(|| self.check_right(self.target.path(&found.path), replaces));
        let fault = checked.clone().err()?;
        Some(fault.path(&found.path))
    }

    /// Whether the root of the target may be created.
    ///
    /// # Errors
    /// The reason for which it can't be, or the session ended.
    pub(super) fn check_root(&self) -> Result<(), Fault> {
        let mut path = self.target.root();
        while let Some(directory) = above(path) {
            match self.target.start_find(directory).found() {
                Ok(None) => path = directory,
                Ok(Some(_)) => return self.check_right(path.to_vec(), false),
                Err(fault) if fault.ends_session => return Err(fault),
                // It can't be asked.
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Whether an entry may be created or replaced, by a dry run of the transfer of a file. What
    /// can't be asked is no obstacle.
    fn check_right(&self, path: Vec<u8>, overwrite: bool) -> Result<(), Fault> {
        let checked = if self.target.is_remote() {
            let job = UploadSpec {
                source: Box::new(PackSource::new(Vec::new(), 0, self.spares.clone())),
                source_path: self.source.root().to_vec(),
                target: path,
                name: Vec::new(),
                pack: false,
                relaxed: false,
                last: None,
            };
            let options = TransferOptions {
                dry_run: true,
                ..self.transfer_options(overwrite)
            };
            let (_, started) = self.session.start(&options, TransferKind::Upload(job));
            started.and_then(|started| started.wait().map(drop))
        } else {
            let request = SinkRequest {
                path,
                name: Vec::new(),
                length: Some(0),
                offset: 0,
                tag: SourceTag::default(),
                mode: None,
                mtime_ns: None,
                digest: DigestKind::None,
                block_size: 1,
                overwrite,
                resume: Resume::Never,
                sparse: false,
            };
            LocalStore::unrooted().check_sink(&request).map(drop)
        };
        checked.or_else(|fault| match fault.code {
            Code::Unsupported | Code::FeatureUnsupported => Ok(()),
            _ => Err(fault),
        })
    }
}
