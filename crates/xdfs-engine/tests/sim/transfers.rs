//! Files and packs that are moved, and tried again until they are whole or can't be.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use xdfs_engine::command::TransferKind;
use xdfs_engine::mailbox::{Mailbox, mailbox};
use xdfs_engine::{
    DownloadSpec, Outcome, PackSource, Spares, TransferEvent, TransferParameters, TransferSpec,
    UploadSpec,
};
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::{
    Content, Entry, Metadata, PACK_BYTES_MAX, PackRequest, PackWriter, Preserve,
};
use xdfs_proto::{Code, DigestKind, Fault, FileId, Retry};
use xdfs_sim::World;
use xdfs_sim::store::SimStore;
use xdfs_store::Store as _;

/// Times that something is tried before its last fault stands.
const TRIES_MAX: u32 = 20;

/// A file or a pack that is moved.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) path: Vec<u8>,
    pub(crate) is_upload: bool,
    pub(crate) what: What,
    pub(crate) digest: DigestKind,
    pub(crate) resume: Resume,
    pub(crate) rate: Option<u64>,
    pub(crate) tries: u32,
    /// It isn't tried again before.
    pub(crate) next_try: Duration,
    pub(crate) events: Option<(FileId, Mailbox<TransferEvent>)>,
    /// Its user wants it no more.
    pub(crate) is_given_up: bool,
    pub(crate) result: Option<Result<(), Fault>>,
}

impl Default for Moved {
    fn default() -> Self {
        Self {
            path: Vec::new(),
            is_upload: false,
            what: What::File,
            digest: DigestKind::Blake3,
            resume: Resume::Trust,
            rate: None,
            tries: 0,
            next_try: Duration::ZERO,
            events: None,
            is_given_up: false,
            result: None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum What {
    File,
    Pack(Pack),
}

/// Small files beneath a directory.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) names: Vec<Vec<u8>>,
    /// Those that aren't there yet, by their place in `names`.
    pub(crate) left: Vec<usize>,
    /// Those of the try that runs.
    pub(crate) asked: Vec<usize>,
    pub(crate) spares: Spares,
}

/// The two stores, as the client sees them.
pub(crate) struct Stores<'a> {
    pub(crate) here: &'a SimStore,
    pub(crate) there: &'a SimStore,
}

impl Stores<'_> {
    pub(crate) fn target(&self, moved: &Moved) -> &SimStore {
        if moved.is_upload {
            self.there
        } else {
            self.here
        }
    }

    pub(crate) fn source(&self, moved: &Moved) -> &SimStore {
        if moved.is_upload {
            self.here
        } else {
            self.there
        }
    }
}

impl Pack {
    fn root(path: &[u8]) -> Vec<u8> {
        [b"/tree", path].concat()
    }

    fn file(root: &[u8], name: &[u8]) -> Vec<u8> {
        [root, b"/", name].concat()
    }

    /// What is left, as a pack.
    fn source(&self, root: &[u8], store: &SimStore) -> PackSource {
        let mut writer = PackWriter::new(self.spares.take(0), PACK_BYTES_MAX);
        for at in &self.left {
            let bytes = store.file(&Self::file(root, &self.names[*at])).unwrap();
            let entry = Entry {
                path: &self.names[*at],
                metadata: Metadata::default(),
                content: Content::File(&bytes),
            };
            assert!(writer.entry(&entry), "the pack is full");
        }
        let (memory, length) = writer.finish();
        PackSource::new(memory, length, self.spares.clone())
    }

    fn request(&self) -> PackRequest {
        PackRequest {
            keep: Preserve::default(),
            follow: false,
            file_bytes_max: 1 << 20,
            names: self.left.iter().map(|at| self.names[*at].clone()).collect(),
        }
    }
}

impl Moved {
    /// What a session is asked for.
    ///
    /// # Errors
    /// The source can't be opened.
    pub(crate) fn job(&mut self, file: FileId, stores: &Stores<'_>) -> Result<TransferSpec, Fault> {
        self.tries += 1;
        let here = stores.here;
        let (path, is_upload) = (self.path.clone(), self.is_upload);
        let upload = |source, source_path, pack| UploadSpec {
            source,
            source_path,
            target: path.clone(),
            name: Vec::new(),
            pack,
            relaxed: false,
            last: None,
        };
        let download = |source, pack_request| DownloadSpec {
            source,
            store: Arc::new(here.clone()),
            target: path.clone(),
            name: Vec::new(),
            pack_request,
        };
        let kind = match &mut self.what {
            What::File if is_upload => {
                let source = here.open_source(&path)?;
                TransferKind::Upload(upload(source, path.clone(), false))
            }
            What::File => TransferKind::Download(download(path.clone(), None)),
            What::Pack(pack) => {
                let root = Pack::root(&path);
                pack.asked.clone_from(&pack.left);
                if is_upload {
                    let source = Box::new(pack.source(&root, here));
                    TransferKind::Upload(upload(source, root, true))
                } else {
                    TransferKind::Download(download(root, Some(pack.request())))
                }
            }
        };
        let (events, receiver) = mailbox();
        self.events = Some((file, receiver));
        Ok(TransferSpec {
            file,
            offset: 0,
            length: None,
            duration: None,
            parameters: TransferParameters {
                digest: Some(self.digest),
                resume: self.resume,
                rate_bytes_per_s_max: self.rate,
                ..TransferParameters::default()
            },
            kind,
            events,
        })
    }

    /// It was tried, and is tried again unless that makes no sense.
    pub(crate) fn ended(
        &mut self,
        result: Result<Outcome, Fault>,
        stores: &Stores<'_>,
        world: &World,
    ) {
        self.events = None;
        world.act(10);
        if let Err(fault) = &result {
            check_fault(fault, world);
            if fault.code == Code::Cancelled && !self.is_upload && self.tries == 1 {
                // What was cancelled before it was ever published must not be from now on.
                self.check_absent(stores, world);
            }
        }
        match result {
            Ok(outcome) => self.moved(outcome, stores, world),
            // A try before published it, and nobody heard of that.
            Err(fault) if fault.code == Code::AlreadyExists => self.result = Some(Ok(())),
            Err(fault) => self.failed(fault, world),
        }
    }

    fn failed(&mut self, fault: Fault, world: &World) {
        if self.is_given_up {
            self.result = Some(Err(fault));
            return;
        }
        let is_final = match fault.retry {
            // The server is begun anew before long.
            Retry::Never if fault.code == Code::ConnectionRefused => false,
            // A user may try again all the same.
            Retry::Never => world.choose(|random| random.permille(300)),
            Retry::Now | Retry::AfterMs(_) => false,
        };
        if is_final || self.tries >= TRIES_MAX {
            self.result = Some(Err(fault));
            return;
        }
        let pause = match (fault.code, fault.retry) {
            // Somebody else has it, perhaps a session that the server has yet to give up.
            (Code::Busy, _) => Duration::from_secs(5),
            (_, Retry::AfterMs(ms)) => Duration::from_millis(ms.into()),
            _ => Duration::ZERO,
        };
        self.next_try = world.time() + pause;
    }

    /// It was said to be published: so it has to stand there, as of now.
    fn moved(&mut self, outcome: Outcome, stores: &Stores<'_>, world: &World) {
        let target = stores.target(self);
        let source = stores.source(self);
        match &mut self.what {
            What::File => {
                if target.file(&self.path).is_none() {
                    world.violation("a file was told to be published and isn't");
                }
                let length = source.source(&self.path).unwrap().length;
                if outcome.bytes != length || outcome.resumed_bytes > length {
                    world.violation(format!("{length} bytes were told as {outcome:?}"));
                }
                if source.is_doubted(&self.path) {
                    world.violation("a file was told to be complete whose source had changed");
                }
                self.result = Some(Ok(()));
            }
            What::Pack(pack) => {
                let failures = outcome.failures;
                let asked = std::mem::take(&mut pack.asked);
                let mut last = None;
                for (number, at) in (0..).zip(&asked) {
                    match failures.of(number) {
                        None => {}
                        Some(fault) if fault.code == Code::AlreadyExists => {}
                        Some(fault) => {
                            last = Some(fault.clone());
                            continue;
                        }
                    }
                    pack.left.retain(|left| left != at);
                    let path = Pack::file(&self.path, &pack.names[*at]);
                    if target.file(&path).is_none() {
                        world.violation("a file of a pack was told to be there and isn't");
                    }
                }
                match last {
                    None => self.result = Some(Ok(())),
                    Some(fault) => self.failed(fault, world),
                }
            }
        }
    }

    fn check_absent(&self, stores: &Stores<'_>, world: &World) {
        if matches!(self.what, What::File) && stores.here.file(&self.path).is_some() {
            world.violation("a cancelled file was published");
        }
    }

    /// What has to hold in the end.
    pub(crate) fn check(&self, stores: &Stores<'_>, world: &World) -> Result<(), String> {
        let (source, target) = (stores.source(self), stores.target(self));
        let result = self.result.as_ref();
        let result = result.ok_or_else(|| format!("nobody heard of {self:?}"))?;
        let is_cancelled = |fault: &Fault| fault.code == Code::Cancelled && self.tries == 1;
        if result.as_ref().is_err_and(is_cancelled) && !self.is_upload {
            self.check_absent(stores, world);
        }
        let names = match &self.what {
            What::File => vec![(
                self.path.clone(),
                source.source(&self.path).unwrap().bytes(),
            )],
            What::Pack(pack) => {
                let root = Pack::root(&self.path);
                let file = |name: &Vec<u8>| {
                    let bytes = source.file(&Pack::file(&root, name)).unwrap();
                    (Pack::file(&self.path, name), bytes)
                };
                pack.names.iter().map(file).collect()
            }
        };
        let tree = target.tree();
        for (at, (path, expected)) in names.iter().enumerate() {
            let is_told = match &self.what {
                What::File => result.is_ok(),
                What::Pack(pack) => !pack.left.contains(&at),
            };
            let name = String::from_utf8_lossy(path);
            let Some(there) = tree.get(path) else {
                match is_told {
                    true => return Err(format!("{name} is gone")),
                    false => continue,
                }
            };
            if &there.durable != expected {
                let mut pairs = there.durable.iter().zip(expected);
                let differs = pairs.position(|(one, other)| one != other);
                let lengths = (there.durable.len(), expected.len());
                return Err(format!("{name} differs at {differs:?}, {lengths:?}"));
            }
        }
        Ok(())
    }
}

/// What holds of every fault that a user is told.
pub(crate) fn check_fault(fault: &Fault, world: &World) {
    let is_named = !fault.operation.is_empty() && !fault.cause.is_empty();
    // Both sides keep to the protocol, and nothing changes control frames on the way.
    let is_defect = matches!(
        fault.code,
        Code::Internal | Code::MalformedFrame | Code::ProtocolViolation
    );
    if !is_named || is_defect || fault.cause.ends_with('.') {
        world.violation(format!("a fault that says too little: {fault:?}"));
    }
}

/// Looks for the next message; `Ready(None)` when there will be none.
pub(crate) fn look<T>(mailbox: &Mailbox<T>) -> Poll<Option<T>> {
    mailbox.poll_recv(&mut Context::from_waker(Waker::noop()))
}
