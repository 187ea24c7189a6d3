//! Copies that this server makes with another server, for users who only look on.
//!
//! [`ThirdPartyStore`] is a layer over all others of a user's store, except those of a relay: it
//! answers the [calls](ThirdPartyCall) for that, and passes everything else on. A [`Copy`] runs in
//! a thread of its own, which acts as the library's client at the other server and as the user
//! here: so rights, quotas, journals, digests and the audit log are those of any transfer.

mod copy;
mod news;
mod state;
mod tree;
mod watch;
mod way;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xdfs_access::{Access, CurrentAccess, ThirdPartyUser};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::third_party::{CopyId, CopyOrder, ThirdPartyCall, TreeOrder};
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::Fingerprint;
use xdfs_security::ticket::{Capability, Opens};
use xdfs_store::Store;
use xdfs_store::rate::SharedRate;

use self::news::News;
use self::state::Copy;
use self::way::Way;

/// Most copies of one user that run at the same time.
const RUNNING_PER_USER_MAX: usize = 16;
/// Most copies that are known, ended ones included: the oldest ended ones are forgotten.
const KNOWN_MAX: usize = 4096;
/// Latest ended copies of one user whose news are kept.
const NEWS_KEPT_PER_USER: usize = 16;
/// Time for which the end of a copy is remembered.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Copies by user and identifier.
type KnownCopies = HashMap<(String, CopyId), Arc<Copy>>;

/// The copies of a server.
#[derive(Debug, Default)]
pub(crate) struct Copies(Mutex<KnownCopies>);

impl Copies {
    fn lock(&self) -> MutexGuard<'_, KnownCopies> {
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

    /// Running copies of the same tree as this one, which is known too.
    fn earlier(&self, user: &str, copy: &Arc<Copy>) -> Vec<Arc<Copy>> {
        let known = self.lock();
        let own = known.iter().filter(|((own, _), _)| own == user);
        let others = own
            .map(|(_, other)| other)
            .filter(|other| !Arc::ptr_eq(other, copy));
        let in_the_way = others.filter(|other| other.is_in_the_way(copy));
        in_the_way.map(Arc::clone).collect()
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
        forget_news(&known, user);
        if known.len() >= KNOWN_MAX {
            let Some(oldest) = oldest_ended(&known, user) else {
                let cause = format!("{KNOWN_MAX} copies are running");
                return Err(Fault::new(Code::LimitExceeded, "start to copy", cause));
            };
            known.remove(&oldest);
        }
        known.insert((user.to_owned(), id), Arc::clone(copy));
        Ok(None)
    }
}

/// Has all but the latest ended copies of a user forget their news, which may never be asked for.
fn forget_news(known: &KnownCopies, user: &str) {
    let own = known.iter().filter(|((own, _), _)| own == user);
    let mut ended: Vec<_> = own
        .filter_map(|(_, copy)| Some((copy.ended_at()?, copy)))
        .collect();
    ended.sort_by_key(|(at, _)| Reverse(*at));
    let older = ended.iter().skip(NEWS_KEPT_PER_USER);
    older
        .filter_map(|(_, copy)| copy.news.as_ref())
        .for_each(News::forget);
}

/// The oldest ended copy: one of this user, if there is any, so that those of others stay.
fn oldest_ended(known: &KnownCopies, user: &str) -> Option<(String, CopyId)> {
    let ended = known
        .iter()
        .filter_map(|(key, copy)| Some((key.0 != user, copy.ended_at()?, key)));
    let oldest = ended.min_by_key(|(is_other, at, _)| (*is_other, *at));
    oldest.map(|(_, _, key)| key.clone())
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
            ThirdPartyCall::Delegate(own) => {
                let capability = Capability {
                    holder: Fingerprint(own.holder),
                    copy: own.copy,
                    path: own.path.clone(),
                    writes: own.writes,
                    opens: Opens::File {
                        bytes_max: own.bytes_max,
                    },
                };
                self.delegate(capability, own.life_s)
            }
            ThirdPartyCall::DelegateTree(own) => {
                let capability = Capability {
                    holder: Fingerprint(own.holder),
                    copy: own.copy,
                    path: own.path.clone(),
                    writes: own.writes,
                    opens: Opens::Tree,
                };
                self.delegate(capability, own.life_s)
            }
            ThirdPartyCall::Start(order) => self.start(order).map(|()| Answer::Done),
            ThirdPartyCall::StartTree(order) => self.start_tree(order).map(|()| Answer::Done),
            ThirdPartyCall::TreeStatus(query) => {
                let copy = self.find(query.copy, "look at the copy")?;
                let status = copy.tree_status(*query)?;
                Ok(Answer::TreeStatus(Box::new(status)))
            }
            ThirdPartyCall::Status(id) => {
                let copy = self.find(*id, "look at the copy")?;
                Ok(Answer::CopyStatus(Box::new(copy.status())))
            }
            ThirdPartyCall::Cancel(id) => {
                let copy = self.find(*id, "cancel the copy")?;
                copy.cancel();
                Ok(Answer::Done)
            }
        }
    }

    /// A copy of the user. A session by a capability, or with other limits, finds none.
    fn find(&self, id: CopyId, operation: &str) -> Result<Arc<Copy>, Fault> {
        self.user.check_limits(operation)?;
        self.copies.find(self.user.name(), id, operation)
    }

    fn delegate(&self, capability: Capability, life_s: u32) -> Result<Answer, Fault> {
        let path = capability.path.clone();
        let life = Duration::from_secs(life_s.into());
        let issued = self.access().delegate(&self.user, capability, life);
        issued
            .map(Answer::Capability)
            .map_err(|fault| fault.path(&path))
    }

    fn start(&self, order: &CopyOrder) -> Result<(), Fault> {
        let started = self.begin(order);
        let code = started.as_ref().err().map(|fault| fault.code);
        let paths = [&*order.here, &*order.there];
        let operation = match order.sends {
            true => "send",
            false => "fetch",
        };
        self.user.started(operation, order.copy, paths, code);
        started
    }

    fn start_tree(&self, order: &TreeOrder) -> Result<(), Fault> {
        let started = self.begin_tree(order);
        let code = started.as_ref().err().map(|fault| fault.code);
        let paths = [&*order.here, &*order.there];
        let operation = match (order.synchronises, order.sends) {
            (false, true) => "send a tree",
            (false, false) => "fetch a tree",
            (true, true) => "synchronise a tree there",
            (true, false) => "synchronise a tree here",
        };
        self.user.started(operation, order.copy, paths, code);
        started
    }

    /// Adds a copy that is about to run. Returns whether it is one: the call may have been made
    /// again in another session.
    fn add(&self, id: CopyId, copy: &Arc<Copy>, is_detached: bool) -> Result<bool, Fault> {
        if self.copies.add(self.user.name(), id, copy)?.is_some() {
            return Ok(false);
        }
        if !is_detached {
            let attached = self.attached.lock();
            let mut attached = attached.unwrap_or_else(PoisonError::into_inner);
            attached.retain(|copy| copy.ended_for().is_none());
            attached.push(Arc::clone(copy));
        }
        Ok(true)
    }

    fn begin(&self, order: &CopyOrder) -> Result<(), Fault> {
        self.access().check_copies(&self.user, order.sends)?;
        let copy = Arc::new(Copy::new(Instant::now()));
        if !self.add(order.copy, &copy, order.detached)? {
            return Ok(());
        }
        let run = copy::Run {
            copy: Arc::clone(&copy),
            order: order.clone(),
            store: Arc::clone(&self.inner),
            way: Way {
                user: self.user.clone(),
                access: self.access(),
                identity: self.current.signer(),
                rate: self.rate.clone(),
                sends: order.sends,
                channels: order.channels,
                key: order.key,
                capability: order.capability.clone(),
                addresses: order.addresses.clone(),
            },
        };
        // It inherits the ids that this thread has taken on.
        run.spawn().inspect_err(|fault| copy.fail(fault.clone()))
    }

    fn begin_tree(&self, order: &TreeOrder) -> Result<(), Fault> {
        self.access().check_copies(&self.user, order.sends)?;
        let work = tree::read(order)?;
        let news = News::new(!order.detached);
        let roots = [order.here.clone(), order.there.clone()];
        let copy = Arc::new(Copy::of_tree(Instant::now(), news, roots));
        if !self.add(order.copy, &copy, order.detached)? {
            return Ok(());
        }
        let run = tree::Run {
            copy: Arc::clone(&copy),
            earlier: self.copies.earlier(self.user.name(), &copy),
            order: order.clone(),
            work,
            store: Arc::clone(&self.inner),
            way: Way {
                user: self.user.clone(),
                access: self.access(),
                identity: self.current.signer(),
                rate: self.rate.clone(),
                sends: order.sends,
                channels: order.channels,
                key: order.key,
                capability: order.capability.clone(),
                addresses: order.addresses.clone(),
            },
        };
        // As do those of the sessions that it opens.
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
            Call::Relay(_) => {
                let cause = "this server is no relay";
                Err(Fault::new(Code::Unsupported, call.operation(), cause))
            }
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

#[cfg(test)]
mod tests {
    use xdfs_proto::third_party::{TreeNews, TreeQuery, TreeStep};

    use super::*;

    /// Adds a copy of a tree that ends before its news are taken.
    fn add_ended(copies: &Copies, user: &str, number: u8) -> Arc<Copy> {
        let news = News::new(true);
        let step = TreeNews::Step {
            step: TreeStep::Copy,
            path: b"x".to_vec(),
            from: Vec::new(),
        };
        news.add(step, || false);
        let copy = Arc::new(Copy::of_tree(
            Instant::now(),
            news,
            [Vec::new(), Vec::new()],
        ));
        let added = copies.add(user, CopyId([number; 16]), &copy).unwrap();
        assert!(added.is_none());
        copy.fail(Fault::new(Code::Cancelled, "copy", "it was cancelled"));
        copy
    }

    #[test]
    fn the_news_of_many_ended_copies_are_forgotten() {
        let copies = Copies::default();
        let other = add_ended(&copies, "other", 0);
        let own: Vec<_> = (0..60).map(|at| add_ended(&copies, "own", at)).collect();
        let has_news = |copy: &Arc<Copy>, number: u8| {
            let query = TreeQuery {
                copy: CopyId([number; 16]),
                from: 0,
                consent: None,
            };
            let status = copy.tree_status(query).unwrap();
            assert!(status.state.is_end());
            !status.news.is_empty()
        };
        let kept: Vec<_> = (0..60)
            .filter(|at| has_news(&own[usize::from(*at)], *at))
            .collect();
        // Another one has ended since the last was added.
        let first = 60 - u8::try_from(NEWS_KEPT_PER_USER).unwrap() - 1;
        assert_eq!(kept, (first..60).collect::<Vec<_>>());
        assert!(has_news(&other, 0), "of another user");
    }

    #[test]
    fn the_copies_of_a_user_make_place_for_each_other() {
        let copies = Copies::default();
        for (user, number) in [("other", 1), ("own", 2), ("own", 3)] {
            add_ended(&copies, user, number);
        }
        let known = copies.lock();
        let oldest = |user: &str| oldest_ended(&known, user).unwrap();
        assert_eq!(oldest("own"), ("own".to_owned(), CopyId([2; 16])));
        assert_eq!(oldest("other"), ("other".to_owned(), CopyId([1; 16])));
        // One who has none takes the place of the oldest.
        assert_eq!(oldest("third"), ("other".to_owned(), CopyId([1; 16])));
    }
}
