//! The transfers of a client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use xdfs_engine::command::TransferKind;
use xdfs_engine::mailbox::mailbox;
use xdfs_engine::{Command, DownloadSpec, TransferParameters, TransferSpec, UploadSpec};
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, Fault, FileId};
use xdfs_store::{LocalStore, Source, Store, StreamSource};
use xdfs_sys::standard::Input as StandardInput;

use super::Client;
use crate::between::Origin;
use crate::local_path::{file_name, path_bytes};
use crate::paths::last_part;
use crate::recognition::ComparedPaths;
use crate::session::Session;
use crate::sinks::Nameless;
use crate::skip::Skip;
use crate::transfer::{LocalPlace, Replacement, Transfer, TransferOptions, TransferRoute};

impl Client {
    /// Starts to send `source` to `target`, a path on the server. In a target directory the file
    /// keeps its name. An existing target is skipped, replaced or refused, as
    /// [`TransferOptions::skip`] and [`TransferParameters::overwrite`] say.
    ///
    /// # Errors
    /// The source can't be opened, or the session has ended. [`Transfer::wait`] returns later
    /// faults.
    pub fn upload(
        &self,
        source: &LocalPlace,
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let place = source;
        let is_file = matches!(source, LocalPlace::Path(_));
        let (source, source_path, name): (Box<dyn Source>, Vec<u8>, Vec<u8>) = match source {
            LocalPlace::OtherServer(file) => {
                let path = &file.place().path;
                let paths = [path.as_slice(), target, &last_part(path)];
                let here = Arc::new(Origin(file.clone()));
                let compared = self.compared_paths(true, here, paths, options);
                let refuses = refused_first(&compared, options);
                let transfer = self.start_between(file, target, last_part(path), &refuses)?;
                let route = TransferRoute::Upload {
                    from: place.clone(),
                    to: target.to_vec(),
                };
                return Ok(self.compare(transfer, compared, route, options));
            }
            LocalPlace::Path(path) => (
                LocalStore::unrooted().open_source(&path_bytes(path))?,
                path_bytes(path),
                file_name(path),
            ),
            LocalPlace::Made(file) => (file.open(), file.path().to_vec(), Vec::new()),
            LocalPlace::Standard => (
                Box::new(StreamSource::new(Box::new(StandardInput), "standard input")),
                b"-".to_vec(),
                Vec::new(),
            ),
            LocalPlace::Memory => (
                Box::new(xdfs_store::ZeroSource::new(options.length)),
                b"mem:zero".to_vec(),
                Vec::new(),
            ),
        };
        let paths = [&source_path, target, &name];
        let (compared, refuses) = self.compared_first(true, is_file, paths, options);
        let transfer = self.start(
            &refuses,
            TransferKind::Upload(UploadSpec {
                source,
                source_path,
                target: target.to_vec(),
                name,
                pack: false,
                relaxed: false,
                last: None,
            }),
        )?;
        let route = TransferRoute::Upload {
            from: place.clone(),
            to: target.to_vec(),
        };
        Ok(self.compare(transfer, compared, route, options))
    }

    /// Starts to fetch `source`, a path on the server, to `target`. An existing target is treated
    /// as by [`Self::upload`].
    ///
    /// # Errors
    /// The session has ended. [`Transfer::wait`] returns later faults.
    pub fn download(
        &self,
        source: &[u8],
        target: &LocalPlace,
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let name = last_part(source);
        let place = target;
        let is_file = matches!(target, LocalPlace::Path(_));
        let (store, target): (Arc<dyn Store>, Vec<u8>) = match target {
            LocalPlace::Path(path) => {
                let store = match options.exact_mode {
                    true => LocalStore::unrooted(),
                    false => LocalStore::unrooted().masking_modes(),
                };
                (Arc::new(store), path_bytes(path))
            }
            LocalPlace::Standard => (Arc::new(Nameless::StandardOutput), b"-".to_vec()),
            LocalPlace::Memory => (Arc::new(Nameless::Null), b"mem:null".to_vec()),
            LocalPlace::OtherServer(_) | LocalPlace::Made(_) => {
                let cause = "a file goes to another server by an upload there";
                return Err(Fault::new(Code::InvalidArgument, "download", cause).path(source));
            }
        };
        let paths = [source, &target, &name];
        let (compared, refuses) = self.compared_first(false, is_file, paths, options);
        let transfer = self.start(
            &refuses,
            TransferKind::Download(DownloadSpec {
                source: source.to_vec(),
                store,
                target,
                name,
                pack_request: None,
            }),
        )?;
        let route = TransferRoute::Download {
            from: source.to_vec(),
            to: place.clone(),
        };
        Ok(self.compare(transfer, compared, route, options))
    }

    /// Starts to send `source`, a path in a store of the caller, to `target`, a path on the server.
    /// In a target directory the file keeps the last component of `source` as its name.
    ///
    /// # Errors
    /// As [`Self::upload`].
    pub fn upload_from(
        &self,
        store: &dyn Store,
        source: &[u8],
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        self.start(
            options,
            TransferKind::Upload(UploadSpec {
                source: store.open_source(source)?,
                source_path: source.to_vec(),
                target: target.to_vec(),
                name: last_part(source),
                pack: false,
                relaxed: false,
                last: None,
            }),
        )
    }

    /// Starts to fetch `source`, a path on the server, to `target`, a path in a store of the
    /// caller. A resumed transfer continues from the ranges that the store reports as durable.
    ///
    /// # Errors
    /// As [`Self::download`].
    pub fn download_to(
        &self,
        source: &[u8],
        store: Arc<dyn Store>,
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        self.start(
            options,
            TransferKind::Download(DownloadSpec {
                source: source.to_vec(),
                store,
                target: target.to_vec(),
                name: last_part(source),
                pack_request: None,
            }),
        )
    }

    /// Starts a transfer by its route, as [`Self::upload`] and [`Self::download`] do.
    ///
    /// # Errors
    /// As [`Self::upload`] and [`Self::download`].
    pub fn transfer(
        &self,
        route: &TransferRoute,
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        match route {
            TransferRoute::Upload { from, to } => self.upload(from, to, options),
            TransferRoute::Download { from, to } => self.download(from, to, options),
        }
    }

    /// Source and target of a transfer that is compared with a file of this machine, and the
    /// options of that transfer: it replaces nothing that has to be looked at before.
    fn compared_first(
        &self,
        is_upload: bool,
        is_file: bool,
        paths: [&[u8]; 3],
        options: &TransferOptions,
    ) -> (Option<ComparedPaths>, TransferOptions) {
        let here = Arc::new(LocalStore::unrooted());
        let compared = self.compared_paths(is_upload, here, paths, options);
        let compared = compared.filter(|_| is_file);
        let refuses = refused_first(&compared, options);
        (compared, refuses)
    }

    /// Source and target, to be compared if the target exists; `None` if nothing is skipped.
    fn compared_paths(
        &self,
        is_upload: bool,
        here: Arc<dyn Store>,
        [source, target, name]: [&[u8]; 3],
        options: &TransferOptions,
    ) -> Option<ComparedPaths> {
        let is_part = options.offset > 0 || options.length.is_some();
        let skip = match options.skip {
            // Parts of a file differ in nothing but their content.
            Skip::SizeAndTime | Skip::NotOlder if is_part => Skip::Identical,
            skip => skip,
        };
        let is_sent_again = skip == Skip::Identical && options.parameters.resume == Resume::Never;
        (skip != Skip::Never && !is_sent_again).then(|| ComparedPaths {
            caller: self.shared.sessions.caller().1,
            here,
            is_upload,
            source: source.to_vec(),
            target: target.to_vec(),
            name: name.to_vec(),
            offset: options.offset,
            length: options.length,
            digest: self.digest(options.parameters.digest),
            dry_run: options.parameters.dry_run,
            skip,
            masks_mode: !is_upload && !options.exact_mode,
        })
    }

    /// Has a transfer that doesn't replace its target compare it, once it was refused, and replace
    /// it then if `options` ask for that.
    fn compare(
        &self,
        transfer: Transfer,
        compared: Option<ComparedPaths>,
        route: TransferRoute,
        options: &TransferOptions,
    ) -> Transfer {
        let Some(compared) = compared else {
            return transfer;
        };
        let shared = Arc::downgrade(&self.shared);
        let replaces = options.parameters.overwrite && compared.skip != Skip::Identical;
        let options = TransferOptions {
            skip: Skip::Never,
            ..options.clone()
        };
        let replace = move || {
            let closed = || Fault::new(Code::Cancelled, "use a session", "the client was closed");
            let shared = shared.upgrade().ok_or_else(closed)?;
            Self { shared }.transfer(&route, &options)
        };
        let replace: Option<Replacement> = match replaces {
            true => Some(Box::new(replace)),
            false => None,
        };
        transfer.with_comparison(compared, replace)
    }

    pub(crate) fn start(
        &self,
        options: &TransferOptions,
        kind: TransferKind,
    ) -> Result<Transfer, Fault> {
        let remote = match &kind {
            TransferKind::Download(spec) => &spec.source,
            TransferKind::Upload(spec) => &spec.target,
        };
        if remote.len() > self.shared.path_bytes_max {
            let cause = format!("it is longer than {} bytes", self.shared.path_bytes_max);
            return Err(Fault::new(Code::NameTooLong, "use the name", cause)
                .path(remote)
                .hint("use a shorter path"));
        }
        let file = FileId(self.shared.next_file.fetch_add(1, Ordering::Relaxed));
        if remote.contains(&0) {
            let cause = "the path has a zero byte";
            return Err(Fault::new(Code::InvalidArgument, "use the name", cause).path(remote));
        }
        let session = self.session()?;
        let kind = match (kind, session.place()) {
            (TransferKind::Download(spec), Some(place)) if spec.pack_request.is_none() => {
                let store = place.comparing(&spec.source, spec.store);
                TransferKind::Download(DownloadSpec { store, ..spec })
            }
            (kind, _) => kind,
        };
        let (events, mailbox) = mailbox();
        let spec = TransferSpec {
            file,
            offset: options.offset,
            length: options.length,
            duration: options.duration,
            parameters: TransferParameters {
                digest: Some(self.digest(options.parameters.digest)),
                ..options.parameters
            },
            kind,
            events,
        };
        let Session { commands, end, .. } = &*session;
        let started = commands.send(Command::Start(Box::new(spec)));
        started.map_err(|_| end.fault())?;
        let commands = commands.clone();
        let cancel = move || {
            // A session that has ended has nothing to cancel.
            let _ = commands.send(Command::Cancel(file));
        };
        Ok(Transfer::new(cancel, mailbox, end.clone()).numbered(file))
    }

    /// Whether a transfer of so many bytes that is interrupted resumes where it was when it is
    /// started again: always if the server has [versions](crate::store::Traits::versions),
    /// otherwise as it can.
    #[must_use]
    pub fn resumes(&self, route: &TransferRoute, bytes: Option<u64>) -> bool {
        if self.traits().versions {
            return true;
        }
        self.behind().is_some_and(|place| match route {
            TransferRoute::Upload { .. } => place.resumes_upload(bytes),
            TransferRoute::Download { .. } => place.resumes_download(),
        })
    }
}

/// Options of a transfer that replaces nothing that has to be looked at before.
fn refused_first(compared: &Option<ComparedPaths>, options: &TransferOptions) -> TransferOptions {
    TransferOptions {
        parameters: TransferParameters {
            overwrite: options.parameters.overwrite && !looks_first(compared),
            ..options.parameters
        },
        ..options.clone()
    }
}

/// Whether a target that may be replaced is compared first.
fn looks_first(compared: &Option<ComparedPaths>) -> bool {
    let skip = compared.as_ref().map(|compared| compared.skip);
    skip.is_some_and(|skip| skip != Skip::Identical)
}
