//! Routes: directories of a relay whose files are delivered to a directory of another server.
//!
//! They are a layer of each user's store, at all doors: so a program that knows nothing of relays
//! leaves a file by FTP as at any server, and its parcel is that of the user. A file that isn't
//! complete is no parcel.

use std::fmt;
use std::sync::{Arc, Weak};

use xdfs_access::{StoreLayer, ThirdPartyUser};
use xdfs_proto::digest::DigestValue;
use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Attributes, Call, Entry, FileKind};
use xdfs_proto::{Code, Fault};
use xdfs_spool::NewParcel;
use xdfs_store::{FileRequest, OpenedFile, OpenedSink, PackOptions, SinkRequest, Source, Store};

use super::calls::new_parcel_id;
use super::parcels::Relay;
use super::route::{RelayRoute, is_name};
use super::target;

const OPEN: &str = "open the target";
/// The cause of refusing all else than to leave a file.
const ELSEWHERE: &str = "files are left here, and delivered elsewhere";
/// The beginning of cursors behind routes; those of stores are names, or begin with numbers.
const CURSOR: &[u8] = b"/routes/";

/// The routes of a relay, for all of its doors.
#[derive(Debug)]
pub(crate) struct Routes {
    /// It has the rules that have this.
    relay: Weak<Relay>,
    routes: Arc<[RelayRoute]>,
}

impl Routes {
    pub(crate) fn new(relay: &Arc<Relay>, routes: &[RelayRoute]) -> Self {
        Self {
            relay: Arc::downgrade(relay),
            routes: routes.into(),
        }
    }
}

impl StoreLayer for Routes {
    fn over(&self, inner: Arc<dyn Store>, user: &ThirdPartyUser) -> Arc<dyn Store> {
        match self.relay.upgrade() {
            Some(relay) => Arc::new(RouteStore {
                inner,
                user: user.clone(),
                relay,
                routes: Arc::clone(&self.routes),
            }),
            // The server has ended.
            None => inner,
        }
    }
}

/// The store of a user of a relay with routes.
struct RouteStore {
    inner: Arc<dyn Store>,
    user: ThirdPartyUser,
    relay: Arc<Relay>,
    routes: Arc<[RelayRoute]>,
}

/// Where a path leads.
enum Way<'a> {
    /// To the directory of all exports and routes.
    Top,
    /// To a route.
    Route(&'a RelayRoute),
    /// To something in a route, by its name there.
    In(&'a RelayRoute, Vec<u8>),
    /// Elsewhere.
    Other,
}

impl RouteStore {
    fn way(&self, path: &[u8]) -> Way<'_> {
        let parts = path.split(|byte| *byte == b'/');
        let mut parts = parts.filter(|part| !matches!(*part, b"" | b"."));
        let Some(first) = parts.next() else {
            return Way::Top;
        };
        let route = self.routes.iter().find(|own| own.name.as_bytes() == first);
        let Some(route) = route else {
            return Way::Other;
        };
        let rest: Vec<&[u8]> = parts.collect();
        match rest.is_empty() {
            true => Way::Route(route),
            false => Way::In(route, rest.join(&b'/')),
        }
    }

    /// Whether a file may be left in a route: as a parcel for its target may be opened.
    fn check(&self, route: &RelayRoute) -> Result<(), Fault> {
        let access = self.relay.current.access();
        let (host, port) = target::host_of(&route.to)?;
        access.check_parcels(&self.user, (&host, port))
    }

    /// The route of a file to be left, and its name; `None` for a file that belongs elsewhere.
    fn destination(&self, request: &SinkRequest) -> Result<Option<(&RelayRoute, Vec<u8>)>, Fault> {
        let fault = |code, cause: &str| Fault::new(code, OPEN, cause).path(&request.path);
        let (route, name) = match self.way(&request.path) {
            Way::Top | Way::Other => return Ok(None),
            Way::In(route, name) => (route, name),
            Way::Route(route) if !request.name.is_empty() => (route, request.name.clone()),
            Way::Route(_) => return Err(fault(Code::IsDirectory, "it is a directory")),
        };
        if !is_name(&name) {
            let fault = fault(
                Code::PermissionDenied,
                "a route has files, and no directories",
            );
            return Err(fault.hint("leave the file in the directory of the route itself"));
        }
        if request.offset != 0 {
            let cause = "a relay takes files as a whole";
            return Err(fault(Code::InvalidArgument, cause));
        }
        self.check(route)?;
        Ok(Some((route, name)))
    }

    /// The sink of a file that becomes a parcel when it is published.
    fn take(
        &self,
        route: &RelayRoute,
        name: Vec<u8>,
        request: &SinkRequest,
    ) -> Result<OpenedSink, Fault> {
        let target = route.file(&name).to_string();
        let order = NewParcel {
            user: self.user.name().to_owned(),
            id: new_parcel_id()?,
            target: target.clone(),
            name,
            // Clients of xDFS ask whether something is there before they replace it, and here
            // nothing is.
            overwrite: route.overwrite,
            tree: false,
            bytes: request.length.unwrap_or(0),
            life_s: route.life_s,
            digest: DigestValue::None,
            next: Vec::new(),
            passed: Vec::new(),
            of: None,
            in_order: None,
            ahead: false,
        };
        let id = order.id;
        let opened = self
            .relay
            .spool
            .open_incoming(order, request, self.relay.now_s());
        let code = opened.as_ref().err().map(|fault| fault.code);
        let paths = [&*request.path, target.as_bytes()];
        self.user.started("take a parcel", id, paths, code);
        opened.map_err(|fault| fault.path(&request.path))
    }

    /// Refuses what isn't done in a route.
    fn check_other(&self, operation: &str, path: &[u8]) -> Result<(), Fault> {
        match self.way(path) {
            Way::Top | Way::Other => Ok(()),
            Way::Route(_) | Way::In(..) => {
                Err(Fault::new(Code::PermissionDenied, operation, ELSEWHERE).path(path))
            }
        }
    }

    /// The routes in which this user may leave files.
    fn visible(&self) -> impl Iterator<Item = &RelayRoute> {
        let own = self.routes.iter();
        own.filter(|route| self.check(route).is_ok())
    }

    /// The directory of all exports and routes, those of routes first: the cursor says how many of
    /// them came.
    fn list_top(
        &self,
        (call, cursor, entries_max): (&Call, &[u8], u32),
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let came = match cursor.strip_prefix(CURSOR) {
            Some(number) => str::from_utf8(number)
                .ok()
                .and_then(|text| text.parse().ok()),
            None if cursor.is_empty() => Some(0),
            None => return self.inner.call(call, part),
        };
        let came = came.unwrap_or(usize::MAX);
        let most = usize::try_from(entries_max).unwrap_or(usize::MAX);
        let own = self.visible().skip(came).take(most).map(|route| Entry {
            attributes: directory(),
            name: route.name.clone().into_bytes(),
        });
        let entries: Vec<Entry> = own.collect();
        if !entries.is_empty() {
            let cursor = [CURSOR, (came + entries.len()).to_string().as_bytes()].concat();
            return Ok(Answer::Entries {
                entries,
                cursor: Some(cursor),
            });
        }
        let mut rest = call.clone();
        if let Call::List { cursor, .. } = &mut rest {
            cursor.clear();
        }
        match self.inner.call(&rest, part) {
            // There is nothing else for this user.
            Err(fault) if fault.code == Code::PermissionDenied && came > 0 => Ok(nothing()),
            other => other,
        }
    }
}

/// An empty directory.
fn nothing() -> Answer {
    Answer::Entries {
        entries: Vec::new(),
        cursor: None,
    }
}

/// The attributes of a route as a directory.
fn directory() -> Attributes {
    Attributes {
        kind: FileKind::Directory,
        size: 0,
        allocated: 0,
        // Files are left in it, and none are listed.
        mode: 0o333,
        uid: 0,
        gid: 0,
        links: 1,
        device: 0,
        inode: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }
}

impl Store for RouteStore {
    xdfs_store::forward!(Store to inner: is_slow, packs_wait);

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        self.check_other("open the source", path)?;
        self.inner.open_source(path)
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        match self.destination(request)? {
            Some((route, name)) => self.take(route, name, request),
            None => self.inner.open_sink(request),
        }
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        match self.destination(request)? {
            Some((route, name)) => Ok([route.name.as_bytes(), b"/", &*name].concat()),
            None => self.inner.check_sink(request),
        }
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        self.check_other("read files of a tree", root)?;
        self.inner.read_pack(root, request, pack)
    }

    fn write_pack(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        self.check_other("write files of a tree", root)?;
        self.inner.write_pack(root, options, pack)
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        match (call, self.way(call.path())) {
            (Call::Stat { .. }, Way::Route(_)) => Ok(Answer::Attributes(directory())),
            (Call::Stat { path, .. }, Way::In(..)) => {
                Err(Fault::new(Code::NotFound, call.operation(), ELSEWHERE).path(path))
            }
            (Call::List { .. }, Way::Route(_)) => Ok(nothing()),
            (
                Call::List {
                    cursor,
                    entries_max,
                    ..
                },
                Way::Top,
            ) => self.list_top((call, cursor, *entries_max), part),
            (Call::Stat { .. }, Way::Top) => match self.inner.call(call, part) {
                // Not of the exports, but there may be routes.
                Err(fault)
                    if fault.code == Code::PermissionDenied && self.visible().next().is_some() =>
                {
                    Ok(Answer::Attributes(directory()))
                }
                other => other,
            },
            (call, Way::Route(_) | Way::In(..)) => {
                self.check_other(call.operation(), call.path())?;
                self.inner.call(call, part)
            }
            (call, _) => self.inner.call(call, part),
        }
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        self.check_other("open", &request.path)?;
        self.inner.open_file(request)
    }
}

impl fmt::Debug for RouteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteStore")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
