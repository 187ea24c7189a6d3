//! A tree that two servers of xDFS move between themselves, while this process looks on.

use std::thread;

use xdfs_proto::third_party::{
    CopyId, CopyState, TREE_OPTIONS_BYTES_MAX, ThirdPartyCall, TreeDelegation, TreeOrder,
    TreeQuery, TreeStatus, TreeTotals,
};
use xdfs_proto::{Code, Fault};

use crate::between::{Failed, LIFE, LOOK_MAX, LOOK_MIN, ServerFile, addresses, impossible, random};
use crate::client::Client;
use crate::paths::{Answer, Call};

/// A tree to be moved from one server to another.
pub(super) struct Errand<'a> {
    pub(super) source: &'a Client,
    pub(super) target: &'a Client,
    /// The root of the tree at the source.
    pub(super) file: &'a ServerFile,
    /// Its root at the target.
    pub(super) path: &'a [u8],
    pub(super) synchronises: bool,
    pub(super) keeps_root: bool,
    /// An earlier attempt may have left entries of the tree.
    pub(super) again: bool,
    /// The server of the source may have it sent: what it needs at the target is in the tree, and
    /// within the rights that a part of the target has.
    pub(super) may_send: bool,
    /// The options of the copy, as JSON.
    pub(super) options: String,
}

/// The answer to a state that was shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reply {
    /// The tree isn't wanted any more.
    pub(super) cancels: bool,
    /// The answer to a question.
    pub(super) consent: Option<bool>,
}

impl Errand<'_> {
    /// Has one of the servers move the tree, and passes each of its states to `look`, with whether
    /// it is the one of the source. The outer fault says why that is impossible.
    pub(super) fn run(
        &self,
        look: &mut dyn FnMut(&TreeStatus, bool) -> Reply,
    ) -> Result<Result<TreeStatus, Fault>, Fault> {
        let (source, target) = (self.source, self.target);
        if !(source.place().address.speaks_xdfs() && target.place().address.speaks_xdfs()) {
            return Err(impossible("the servers are of different kinds"));
        }
        if self.options.len() > TREE_OPTIONS_BYTES_MAX {
            return Err(impossible("its options are too long for an order"));
        }
        let mut why = impossible("neither server copies trees with other servers");
        for sends in [false, true] {
            let acts = [target, source][usize::from(sends)];
            if acts.refuses_trees() || (sends && !self.may_send) {
                continue;
            }
            let started = self.start(sends);
            match started.and_then(|copy| self.follow(acts, sends, copy, look)) {
                Ok(status) => return Ok(Ok(status)),
                Err(Failed::File(fault)) => return Ok(Err(fault)),
                Err(Failed::Way(fault)) => {
                    acts.refuse_trees();
                    why = fault;
                }
                Err(Failed::Once(fault)) => why = fault,
            }
        }
        Err(why)
    }

    fn start(&self, sends: bool) -> Result<CopyId, Failed> {
        let (acts, issues) = match sends {
            false => (self.target, self.source),
            true => (self.source, self.target),
        };
        let from = &self.file.place().path;
        let (here, there) = match sends {
            false => (self.path, &**from),
            true => (&**from, self.path),
        };
        let unprotected = || Failed::Way(impossible("a session without protection has no keys"));
        let holder = acts.server_fingerprint().ok_or_else(unprotected)?;
        let key = issues.server_fingerprint().ok_or_else(unprotected)?;
        let copy = CopyId(random()?);
        let delegation = TreeDelegation {
            copy,
            writes: sends,
            holder: holder.0,
            life_s: u32::try_from(LIFE.as_secs()).unwrap_or(u32::MAX),
            path: there.to_vec(),
        };
        let call = ThirdPartyCall::DelegateTree(Box::new(delegation));
        let Answer::Capability(capability) = self.ask(issues, !sends, call)? else {
            return Err(Failed::Way(impossible("another answer")));
        };
        let order = TreeOrder {
            copy,
            synchronises: self.synchronises,
            sends,
            detached: false,
            keeps_root: self.keeps_root,
            again: self.again,
            channels: self.target.channels(),
            key: key.0,
            capability,
            addresses: addresses(issues),
            here: here.to_vec(),
            there: there.to_vec(),
            options: self.options.clone(),
        };
        self.ask(acts, sends, ThirdPartyCall::StartTree(Box::new(order)))?;
        Ok(copy)
    }

    /// Makes a call that a server may not do, or not for this user.
    fn ask(
        &self,
        client: &Client,
        is_source: bool,
        call: ThirdPartyCall,
    ) -> Result<Answer, Failed> {
        let answer = client.call(Call::ThirdParty(call));
        answer.map_err(|fault| match fault.code {
            Code::Unsupported | Code::PermissionDenied => Failed::Way(fault),
            // It may have less to do at the next tree.
            Code::LimitExceeded => Failed::Once(fault),
            _ => Failed::File(self.at(is_source, fault)),
        })
    }

    fn follow(
        &self,
        acts: &Client,
        sends: bool,
        copy: CopyId,
        look: &mut dyn FnMut(&TreeStatus, bool) -> Reply,
    ) -> Result<TreeStatus, Failed> {
        let mut query = TreeQuery {
            copy,
            from: 0,
            consent: None,
        };
        let mut pause = LOOK_MIN;
        let mut is_cancelled = false;
        loop {
            let answer = acts.call(Call::ThirdParty(ThirdPartyCall::TreeStatus(query)));
            let answer = answer.map_err(|fault| Failed::File(self.at(sends, fault)))?;
            let Answer::TreeStatus(status) = answer else {
                // The engine lets nothing else through.
                let fault = Fault::new(Code::Internal, "look at the copy", "another answer");
                return Err(Failed::File(fault));
            };
            // An earlier part of them was taken by an answer that was lost.
            let known = query.from.saturating_sub(status.first);
            let skipped = usize::try_from(known).unwrap_or(usize::MAX);
            let news = status.news.len();
            query.from = query.from.max(status.first.saturating_add(news as u64));
            let mut status = *status;
            status.news.drain(..skipped.min(news));
            let has_news = !status.news.is_empty();
            let reply = look(&status, sends);
            if let Some(fault) = status.fault.take() {
                let is_at_source = sends != status.is_fault_there;
                let fault = self.at(is_at_source, fault);
                return Err(match status.state {
                    // It may be restarting, if it was reached before.
                    CopyState::Unreachable if self.again => Failed::Once(fault),
                    CopyState::Unreachable if !is_cancelled => Failed::Way(fault),
                    _ if self.is_narrow(&status, &fault) => Failed::Once(fault),
                    _ => Failed::File(fault),
                });
            }
            if status.state.is_end() {
                return Ok(status);
            }
            if reply.cancels && !is_cancelled {
                is_cancelled = true;
                let cancelled = acts.cancel_copy(copy);
                cancelled.map_err(|fault| Failed::File(self.at(sends, fault)))?;
            }
            query.consent = reply.consent;
            match has_news || reply.consent.is_some() {
                true => pause = LOOK_MIN,
                false => pause = (pause * 2).min(LOOK_MAX),
            }
            if !status.more || !has_news {
                thread::sleep(pause);
            }
        }
    }

    /// Whether the root is beyond what a capability opens, which the user may have the right to:
    /// one that is reached by a symbolic link.
    pub(super) fn is_narrow(&self, status: &TreeStatus, fault: &Fault) -> bool {
        let is_refused = matches!(fault.code, Code::PermissionDenied | Code::PathEscape);
        let moved = status.figures.moved;
        is_refused && status.is_fault_there && moved == TreeTotals::default()
    }

    /// A fault of the server of the source, or of that of the target.
    pub(super) fn at(&self, is_at_source: bool, fault: Fault) -> Fault {
        let ends_session = fault.ends_session;
        let fault = match is_at_source {
            true => self.file.named(fault.remote()),
            false => self.target.fault_there(fault),
        };
        Fault {
            ends_session,
            ..fault
        }
    }
}
