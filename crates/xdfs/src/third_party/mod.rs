//! Copies that this server makes with another server, for users who only look on.
//!
//! [`ThirdPartyStore`] is the outermost layer of a user's store: it answers the
//! [calls](ThirdPartyCall) for that, and passes everything else on. A [`Copy`] runs in a thread of
//! its own, which acts as the library's client at the other server and as the user here: so rights,
//! quotas, journals, digests and the audit log are those of any transfer.

mod copy;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xdfs_access::{Access, CurrentAccess, ThirdPartyUser};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::third_party::{CopyId, CopyOrder, Delegation, ThirdPartyCall};
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::Fingerprint;
use xdfs_security::ticket::Capability;
use xdfs_store::Store;
use xdfs_store::rate::SharedRate;

use self::copy::Copy;

/// Most copies of one user that run at the same time.
const RUNNING_PER_USER_MAX: usize = 16;
/// Most copies that are known, ended ones included: the oldest ended ones are forgotten.
const KNOWN_MAX: usize = 4096;
/// Time for which the end of a copy is remembered.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The copies of a server, by user and identifier.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<HashMap<(String, CopyId), Arc<Copy>>>);

impl Copies {
    fn lock(&self) -> MutexGuard<'_, HashMap<(String, CopyId), Arc<Copy>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, user: &str, id: CopyId, operation: &str) -> Result<Arc<Copy>, Fault> {
        let found = self.lock().get(&(user.to_owned(), id)).map(Arc::clone);
        found.ok_or_else(|| {
            let cause = format!("there is no copy {id} of this user");
            Fault::new(Code::NotFound, operation, cause)
                .hint("a server forgets copies when it restarts, and a day after their end")
        })
    }

    /// Adds a copy that is about to run; the one that has the identifier already, if there is one.
    fn add(&self, user: &str, id: CopyId, copy: &Arc<Copy>) -> Result<Option<Arc<Copy>>, Fault> {
        let mut known = self.lock();
        if let Some(same) = known.get(&(user.to_owned(), id)) {
            return Ok(Some(Arc::clone(same)));
        }
        known.retain(|_, copy| copy.ended_for().is_none_or(|age| age < KEPT));
        let is_running = |(_, copy): &(&(String, CopyId), &Arc<Copy>)| copy.ended_for().is_none();
        let own = known.iter().filter(|((own, _), _)| own == user);
        if own.filter(is_running).count() >= RUNNING_PER_USER_MAX {
            let cause = format!("{RUNNING_PER_USER_MAX} copies of the user are running");
            return Err(Fault::new(Code::LimitExceeded, "start to copy", cause));
        }
        if known.len() >= KNOWN_MAX {
            let ended = known.iter().filter(|(_, copy)| copy.ended_for().is_some());
            let oldest = ended.max_by_key(|(_, copy)| copy.ended_for());
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                let cause = format!("{KNOWN_MAX} copies are running");
                return Err(Fault::new(Code::LimitExceeded, "start to copy", cause));
            };
            known.remove(&oldest);
        }
        known.insert((user.to_owned(), id), Arc::clone(copy));
        Ok(None)
    }
}

/// The store of a session whose user may have files copied with other servers.
pub(crate) struct ThirdPartyStore {
    inner: Arc<dyn Store>,
    user: ThirdPartyUser,
    current: Arc<dyn CurrentAccess>,
    copies: Arc<Copies>,
    /// The user's rate limit, for all sessions.
    rate: Option<Arc<SharedRate>>,
    /// Those that end with the session.
    attached: Mutex<Vec<Arc<Copy>>>,
}

impl ThirdPartyStore {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        user: ThirdPartyUser,
        current: Arc<dyn CurrentAccess>,
        copies: Arc<Copies>,
        rate: Option<Arc<SharedRate>>,
    ) -> Self {
        Self {
            inner,
            user,
            current,
            copies,
            rate,
            attached: Mutex::default(),
        }
    }

    fn access(&self) -> Arc<Access> {
        self.current.access()
    }

    fn answer(&self, call: &ThirdPartyCall) -> Result<Answer, Fault> {
        match call {
            ThirdPartyCall::Delegate(delegation) => self.delegate(delegation),
            ThirdPartyCall::Start(order) => self.start(order).map(|()| Answer::Done),
            ThirdPartyCall::Status(id) => {
                let copy = self
                    .copies
                    .find(self.user.name(), *id, "look at the copy")?;
                Ok(Answer::CopyStatus(Box::new(copy.status())))
            }
            ThirdPartyCall::Cancel(id) => {
                let copy = self.copies.find(self.user.name(), *id, "cancel the copy")?;
                copy.cancel();
                Ok(Answer::Done)
            }
        }
    }

    fn delegate(&self, delegation: &Delegation) -> Result<Answer, Fault> {
        let capability = Capability {
            holder: Fingerprint(delegation.holder),
            copy: delegation.copy,
            path: delegation.path.clone(),
            writes: delegation.writes,
            bytes_max: delegation.bytes_max,
        };
        let life = Duration::from_secs(delegation.life_s.into());
        let issued = self.access().delegate(&self.user, capability, life);
        issued
            .map(Answer::Capability)
            .map_err(|fault| fault.path(&delegation.path))
    }

    fn start(&self, order: &CopyOrder) -> Result<(), Fault> {
        let started = self.begin(order);
        let code = started.as_ref().err().map(|fault| fault.code);
        let paths = [&*order.here, &*order.there];
        self.user.started(order.sends, order.copy, paths, code);
        started
    }

    fn begin(&self, order: &CopyOrder) -> Result<(), Fault> {
        self.access().check_copies(&self.user, order.sends)?;
        let copy = Arc::new(Copy::new(Instant::now()));
        if self
            .copies
            .add(self.user.name(), order.copy, &copy)?
            .is_some()
        {
            // The call was made again in another session.
            return Ok(());
        }
        if !order.detached {
            let attached = self.attached.lock();
            let mut attached = attached.unwrap_or_else(PoisonError::into_inner);
            attached.retain(|copy| copy.ended_for().is_none());
            attached.push(Arc::clone(&copy));
        }
        let run = copy::Run {
            copy: Arc::clone(&copy),
            order: order.clone(),
            store: Arc::clone(&self.inner),
            user: self.user.clone(),
            access: self.access(),
            identity: self.current.signer(),
            rate: self.rate.clone(),
        };
        // It inherits the ids that this thread has taken on.
        run.spawn().inspect_err(|fault| copy.fail(fault.clone()))
    }
}

impl Drop for ThirdPartyStore {
    fn drop(&mut self) {
        let attached = self.attached.get_mut();
        for copy in attached.unwrap_or_else(PoisonError::into_inner) {
            copy.cancel();
        }
    }
}

impl Store for ThirdPartyStore {
    xdfs_store::forward!(Store to inner: is_slow, open_source, open_sink, check_sink, read_pack,
        write_pack, packs_wait, open_file);

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        match call {
            Call::ThirdParty(call) => self.answer(call),
            call => self.inner.call(call, part),
        }
    }
}

impl fmt::Debug for ThirdPartyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThirdPartyStore")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
