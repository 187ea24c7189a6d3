//! Failures that a dry run foresees: entries in the way, and rights that are missing at the
//! target.

use std::collections::HashMap;

use xdfs_engine::command::TransferKind;
use xdfs_engine::{PackSource, UploadSpec};
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, DigestKind, Fault, SourceTag};
use xdfs_store::{LocalStore, SinkRequest, Store as _};

use super::namespace::FoundName;
use super::run::TreeRun;
use super::space::above;
use super::tracker::split;
use crate::paths::FileKind;

/// What was found out about a directory of the target: whether entries may be created in it, and
/// whether they may be replaced.
#[derive(Debug, Default)]
pub(super) struct CheckedRights([Option<Result<(), Fault>>; 2]);

/// The directories in which a dry run of a synchronisation would change something.
#[derive(Debug, Default)]
pub(super) struct ForeseenDirectories(HashMap<Vec<u8>, ForeseenDirectory>);

#[derive(Debug)]
enum ForeseenDirectory {
    /// It would be created.
    New,
    /// It can't be created, and is reported.
    Refused,
    There(Box<CheckedRights>),
}

impl ForeseenDirectories {
    /// The directory would be created.
    pub(super) fn add_new(&mut self, path: &[u8]) {
        self.0.insert(path.to_vec(), ForeseenDirectory::New);
    }

    /// Whether an entry could be created, or replaced if it `replaces` one; `None` if its
    /// directory can't be created, which is reported.
    pub(super) fn check(
        &mut self,
        run: &TreeRun<'_>,
        path: &[u8],
        is_directory: bool,
        replaces: bool,
    ) -> Option<Result<(), Fault>> {
        let above = self.0.entry(split(path).0.to_vec());
        let result = match above.or_insert_with(|| ForeseenDirectory::There(Box::default())) {
            ForeseenDirectory::New => Some(Ok(())),
            ForeseenDirectory::Refused => None,
            ForeseenDirectory::There(checked) => Some(run.check_change(path, replaces, checked)),
        };
        if is_directory && !replaces {
            let is_new = matches!(result, Some(Ok(())));
            let directory = match is_new {
                true => ForeseenDirectory::New,
                false => ForeseenDirectory::Refused,
            };
            self.0.insert(path.to_vec(), directory);
        }
        result
    }
}

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
        let overwrite = self.options.parameters.overwrite;
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
        let checked = self.checked(&found.path, there.is_some(), checked);
        checked.err().map(|fault| fault.path(&found.path))
    }

    /// Whether an entry may be created or replaced, which is asked once for all entries of its
    /// directory.
    fn checked(
        &self,
        path: &[u8],
        replaces: bool,
        checked: &mut CheckedRights,
    ) -> Result<(), Fault> {
        let checked = &mut checked.0[usize::from(replaces)];
        let checked =
            checked.get_or_insert_with(|| self.check_right(self.target.path(path), replaces));
        checked.clone()
    }

    /// Whether a synchronisation may create or replace an entry. What is in its way is no obstacle:
    /// the comparison has dealt with it. Nor is a directory that its owner has closed, which would
    /// be opened.
    fn check_change(
        &self,
        path: &[u8],
        replaces: bool,
        checked: &mut CheckedRights,
    ) -> Result<(), Fault> {
        let fault = match self.checked(path, replaces, checked) {
            Ok(()) => return Ok(()),
            Err(fault) => fault.path(path),
        };
        let is_obstacle = match fault.code {
            Code::AlreadyExists | Code::IsDirectory | Code::NotDirectory | Code::NotFound => false,
            Code::PermissionDenied => {
                let found = self.target.look_up([split(path).0].into_iter()).pop();
                matches!(found, Some(Ok(Some(found))) if !self.would_open(&found))
            }
            _ => true,
        };
        match is_obstacle {
            true => Err(fault),
            false => {
                // For the others of the directory.
                checked.0[usize::from(replaces)] = Some(Ok(()));
                Ok(())
            }
        }
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
            let mut options = self.transfer_options(overwrite);
            options.parameters.dry_run = true;
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
