//! The layer of a user's store that takes parcels.

use std::fmt;
use std::sync::Arc;

use xdfs_access::ThirdPartyUser;
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::relay::{ParcelEnd, ParcelName, ParcelOrder, RelayCall, parcel_of};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault};
use xdfs_spool::NewParcel;
use xdfs_store::{OpenedSink, SinkRequest, Store};

use super::parcels::Relay;
use super::target;

const LIST: &str = "list the parcels";

/// The store of a session whose user may have files delivered.
pub(crate) struct RelayStore {
    inner: Arc<dyn Store>,
    user: ThirdPartyUser,
    relay: Arc<Relay>,
}

impl RelayStore {
    pub(crate) fn new(inner: Arc<dyn Store>, user: ThirdPartyUser, relay: Arc<Relay>) -> Self {
        Self { inner, user, relay }
    }

    fn answer(&self, call: &RelayCall) -> Result<Answer, Fault> {
        let user = self.user.name();
        match call {
            RelayCall::Open(order) => {
                let opened = self.open(order);
                let code = opened.as_ref().err().map(|fault| fault.code);
                let paths = [&*order.name, order.target.as_bytes()];
                self.user.started("take a parcel", order.id, paths, code);
                opened.map(|()| Answer::Done)
            }
            RelayCall::Status(name) => {
                let user = self.owner(name, "look at the parcel")?;
                let status = self.relay.status(user, name.id)?;
                Ok(Answer::ParcelStatus(Box::new(status)))
            }
            RelayCall::End(name, end) => {
                let user = self.owner(name, call_name(*end))?;
                let ended = match end {
                    ParcelEnd::Cancel => self.relay.cancel(user, name.id),
                    ParcelEnd::Retry => self.relay.retry(user, name.id),
                };
                if let Some(other) = &name.user {
                    let code = ended.as_ref().err().map(|fault| fault.code);
                    let paths = [other.as_bytes(), &[]];
                    self.user.started(call_name(*end), name.id, paths, code);
                }
                ended.map(|()| Answer::Done)
            }
            RelayCall::List(query) => {
                self.user.check_limits(LIST)?;
                let one = match query.all_users {
                    true => self.check_operator(LIST).map(|()| None)?,
                    false => Some(user),
                };
                Ok(Answer::Parcels(self.relay.list(one, *query)?))
            }
        }
    }

    /// The user whose parcel is meant.
    fn owner<'a>(&'a self, name: &'a ParcelName, operation: &str) -> Result<&'a str, Fault> {
        self.user.check_limits(operation)?;
        match &name.user {
            Some(user) if user != self.user.name() => {
                self.check_operator(operation)?;
                Ok(user)
            }
            _ => Ok(self.user.name()),
        }
    }

    fn check_operator(&self, operation: &str) -> Result<(), Fault> {
        if self.relay.current.access().is_operator(&self.user) {
            return Ok(());
        }
        let cause = "only the user who runs the relay may ask about those of others";
        Err(Fault::new(Code::PermissionDenied, operation, cause))
    }

    fn open(&self, order: &ParcelOrder) -> Result<(), Fault> {
        let access = self.relay.current.access();
        let target = target::parse(&order.target)?;
        let next = order.next.iter().map(|url| target::parse_relay(url));
        let next = next.collect::<Result<Vec<_>, _>>()?;
        let (host, port) = target::host_of(next.first().unwrap_or(&target))?;
        access.check_parcels(&self.user, (&host, port))?;
        if order.passed.contains(&self.relay.spool.identity()) {
            let cause = "the parcel has passed this relay already";
            let fault = Fault::new(Code::InvalidArgument, "open the parcel", cause);
            return Err(fault.hint("its route is a loop"));
        }
        let new = NewParcel {
            user: self.user.name().to_owned(),
            id: order.id,
            target: order.target.clone(),
            name: order.name.clone(),
            overwrite: order.overwrite,
            tree: order.tree,
            bytes: order.bytes,
            life_s: order.life_s,
            digest: order.digest,
            next: order.next.clone(),
            passed: order.passed.clone(),
            of: order.of,
            in_order: order.in_order.clone(),
            ahead: order.ahead,
        };
        self.relay.spool.submit(new, self.relay.now_s()).map(drop)
    }

    /// The sink of a parcel of this user.
    fn sink(&self, id: CopyId, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.user.check_limits("open the target")?;
        let spool = &self.relay.spool;
        let found = spool.find(self.user.name(), id);
        let parcel = found.map_err(|fault| fault.path(&request.path))?;
        spool.open_sink(&parcel, request)
    }
}

fn call_name(end: ParcelEnd) -> &'static str {
    match end {
        ParcelEnd::Cancel => "cancel the parcel",
        ParcelEnd::Retry => "put back the parcel",
    }
}

impl Store for RelayStore {
    xdfs_store::forward!(Store to inner: is_slow, open_source, read_pack, write_pack, packs_wait,
        open_file);

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        match parcel_of(&request.path) {
            Some(id) => self.sink(id, request),
            None => self.inner.open_sink(request),
        }
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        match parcel_of(&request.path) {
            Some(id) => {
                self.user.check_limits("open the target")?;
                let found = self.relay.spool.find(self.user.name(), id);
                found.map_err(|fault| fault.path(&request.path))?;
                Ok(request.path.clone())
            }
            None => self.inner.check_sink(request),
        }
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        match call {
            Call::Relay(call) => self.answer(call),
            call => self.inner.call(call, part),
        }
    }
}

impl fmt::Debug for RelayStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayStore")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
