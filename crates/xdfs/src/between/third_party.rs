//! A file that two servers of xDFS copy between themselves, while this process looks on.

use std::thread;
use std::time::Duration;

use xdfs_engine::{LimitedBy, Outcome, Passage, Progress, TimeShares};
use xdfs_proto::pack::Failures;
use xdfs_proto::third_party::{
    CopyId, CopyOrder, CopyState, CopyStatus, Delegation, ThirdPartyCall,
};
use xdfs_proto::{Code, Fault};

use super::order::{Failed, LIFE, LOOK_MAX, LOOK_MIN, addresses, impossible, random};
use super::transfer::Course;
use super::{DetachedCopy, ServerFile};
use crate::client::Client;
use crate::paths::{Answer, Attributes, Call, FileKind, join, last_part};
use crate::transfer::TransferOptions;

/// The two paths of a copy.
struct Paths {
    source: Vec<u8>,
    target: Vec<u8>,
}

/// The end of the part that this process takes in a copy.
type Follow<T> = fn(&Course, &Client, DetachedCopy) -> Result<T, Failed>;

impl Client {
    /// Has a file of another server copied to `target`, in a directory there to its name, by one of
    /// the two servers, which continues it after the end of this session. Returns once it has
    /// reached the other one.
    ///
    /// # Errors
    /// Neither server may connect to the other, or can; or the file can't be copied.
    pub fn detach_copy(
        &self,
        file: &ServerFile,
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<DetachedCopy, Fault> {
        let name = last_part(&file.place().path);
        let (course, _mailbox) = Course::new(self, file, target, name, options);
        let source = file.client()?;
        course.by_servers(&source, true, Course::reach)?
    }

    /// The state of a copy that the server makes for this user.
    ///
    /// # Errors
    /// [`Code::NotFound`] if the server doesn't know it (any more).
    pub fn copy_status(&self, id: CopyId) -> Result<CopyStatus, Fault> {
        match self.call(Call::ThirdParty(ThirdPartyCall::Status(id)))? {
            Answer::CopyStatus(status) => Ok(*status),
            // The engine lets nothing else through.
            _ => Err(Fault::new(
                Code::Internal,
                "look at the copy",
                "another answer",
            )),
        }
    }

    /// Ends a copy that the server makes for this user. What has arrived stays for a resume.
    ///
    /// # Errors
    /// As [`Self::copy_status`].
    pub fn cancel_copy(&self, id: CopyId) -> Result<(), Fault> {
        self.call(Call::ThirdParty(ThirdPartyCall::Cancel(id)))
            .map(drop)
    }
}

impl Course {
    /// Has one of the servers fetch the file from the other, or send it there. The fault says why
    /// that is impossible.
    pub(super) fn third_party(&self, source: &Client) -> Result<Result<Outcome, Fault>, Fault> {
        self.by_servers(source, false, Self::look_on)
    }

    fn by_servers<T>(
        &self,
        source: &Client,
        detached: bool,
        follow: Follow<T>,
    ) -> Result<Result<T, Fault>, Fault> {
        let target = &self.target;
        if !(source.place().address.speaks_xdfs() && target.place().address.speaks_xdfs()) {
            return Err(impossible("the servers are of different kinds"));
        }
        // Both are in the process of opening their sessions, which a call waits for.
        let (found, paths) = match self.look_at_both(source) {
            Ok(both) => both,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut why = impossible("neither server copies files with other servers");
        for sends in [false, true] {
            let orders = [target, source][usize::from(sends)];
            if orders.refuses_copies() {
                continue;
            }
            let started = self.start(source, [sends, detached], &found, &paths);
            match started.and_then(|copy| follow(self, orders, copy)) {
                Ok(followed) => return Ok(Ok(followed)),
                Err(Failed::File(fault)) => return Ok(Err(fault)),
                Err(Failed::Way(fault)) => {
                    orders.refuse_copies();
                    why = fault;
                }
                Err(Failed::Once(fault)) => why = fault,
            }
        }
        Err(why)
    }

    /// The source, and the paths of the copy.
    fn look_at_both(&self, source: &Client) -> Result<(Attributes, Paths), Fault> {
        let stat = |path: &[u8]| Call::Stat {
            path: path.to_vec(),
            follow: true,
        };
        let from = self.file.place().path.clone();
        let there = source.start_call(stat(&from));
        let here = self.target.start_call(stat(&self.path))?;
        let named = |fault| self.file.named(fault);
        let found = there.and_then(|call| self.wait(call)).map_err(named)?;
        let Answer::Attributes(found) = found else {
            // The engine lets nothing else through.
            return Err(Fault::new(Code::Internal, "look at", "another answer"));
        };
        let is_directory = match self.wait(here) {
            Ok(Answer::Attributes(found)) => found.kind == FileKind::Directory,
            Ok(_) => false,
            // A target that can't be looked at is as one that isn't there: to write it decides.
            Err(fault) if fault.ends_session || fault.code == Code::Cancelled => return Err(fault),
            Err(_) => false,
        };
        let target = match is_directory && !self.name.is_empty() {
            true => join(&self.path, &self.name),
            false => self.path.clone(),
        };
        Ok((
            found,
            Paths {
                source: from,
                target,
            },
        ))
    }

    /// Orders the file to be sent by its server, or to be fetched by that of the target.
    fn start(
        &self,
        source: &Client,
        [sends, detached]: [bool; 2],
        found: &Attributes,
        paths: &Paths,
    ) -> Result<DetachedCopy, Failed> {
        let (acts, issues) = match sends {
            false => (&self.target, source),
            true => (source, &self.target),
        };
        let (here, there) = match sends {
            false => (&paths.target, &paths.source),
            true => (&paths.source, &paths.target),
        };
        let unprotected = || Failed::Way(impossible("a session without protection has no keys"));
        let holder = acts.server_fingerprint().ok_or_else(unprotected)?;
        let key = issues.server_fingerprint().ok_or_else(unprotected)?;
        let copy = CopyId(random()?);
        let delegation = Delegation {
            copy,
            writes: sends,
            holder: holder.0,
            bytes_max: found.size,
            life_s: u32::try_from(LIFE.as_secs()).unwrap_or(u32::MAX),
            path: there.clone(),
        };
        let answer = self.ask(issues, ThirdPartyCall::Delegate(Box::new(delegation)))?;
        let Answer::Capability(capability) = answer else {
            return Err(Failed::Way(impossible("another answer")));
        };
        let parameters = &self.options.parameters;
        let order = CopyOrder {
            copy,
            sends,
            detached,
            overwrite: parameters.overwrite,
            resume: parameters.resume,
            digest: self.target.digest(parameters.digest),
            channels: self.target.channels(),
            rate_bytes_per_s_max: parameters.rate_bytes_per_s_max.unwrap_or(0),
            key: key.0,
            capability,
            addresses: addresses(issues),
            here: here.clone(),
            there: there.clone(),
            name: Vec::new(),
        };
        self.ask(acts, ThirdPartyCall::Start(Box::new(order)))?;
        Ok(DetachedCopy {
            id: copy,
            is_at_source: sends,
        })
    }

    /// Makes a call that a server may not do, or not for this user.
    fn ask(&self, client: &Client, call: ThirdPartyCall) -> Result<Answer, Failed> {
        let answer = client.start_call(Call::ThirdParty(call));
        answer
            .and_then(|call| self.wait(call))
            .map_err(|fault| match fault.code {
                Code::Unsupported | Code::PermissionDenied => Failed::Way(fault),
                // It may have less to do at the next file.
                Code::LimitExceeded => Failed::Once(fault),
                _ => Failed::File(fault),
            })
    }

    /// Follows a copy until its server has reached the other one.
    fn reach(&self, acts: &Client, copy: DetachedCopy) -> Result<DetachedCopy, Failed> {
        let has_reached = |state| state != CopyState::Connecting;
        self.follow(acts, copy, has_reached).map(|_| copy)
    }

    /// Follows a copy to its end.
    fn look_on(&self, acts: &Client, copy: DetachedCopy) -> Result<Outcome, Failed> {
        self.follow(acts, copy, CopyState::is_end).map(outcome)
    }

    fn follow(
        &self,
        acts: &Client,
        copy: DetachedCopy,
        is_enough: fn(CopyState) -> bool,
    ) -> Result<CopyStatus, Failed> {
        let mut pause = LOOK_MIN;
        let mut is_cancelled = false;
        loop {
            let status = acts.copy_status(copy.id);
            let status = status.map_err(|fault| Failed::File(self.at(copy.is_at_source, fault)))?;
            if let Some(fault) = &status.fault {
                let is_at_source = copy.is_at_source != status.is_fault_there;
                let fault = self.at(is_at_source, fault.clone());
                return Err(match status.state {
                    CopyState::Unreachable if !is_cancelled => Failed::Way(fault),
                    _ if is_narrow(&status) => Failed::Once(fault),
                    _ => Failed::File(fault),
                });
            }
            if is_enough(status.state) {
                return Ok(status);
            }
            let progress = Progress {
                bytes: status.bytes,
                bytes_total: status.bytes_total,
                resumed_bytes: status.resumed_bytes,
                channels: status.channels.into(),
            };
            if self.tell(progress).is_break() {
                self.cancel();
            }
            if self.is_cancelled() && !is_cancelled {
                is_cancelled = true;
                let cancelled = acts.cancel_copy(copy.id);
                cancelled.map_err(|fault| Failed::File(self.at(copy.is_at_source, fault)))?;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    /// A fault of the server of the source, or of that of the target.
    fn at(&self, is_at_source: bool, fault: Fault) -> Fault {
        match is_at_source {
            true => self.file.named(fault.remote()),
            false => self.target.fault_there(fault),
        }
    }
}

/// Whether a copy has failed for what a capability doesn't open: a symbolic link to the file, or a
/// file that has grown. The user may have the right to it, and then this process copies it.
fn is_narrow(status: &CopyStatus) -> bool {
    let fault = status.fault.as_ref();
    let is_refused =
        |fault: &Fault| matches!(fault.code, Code::PermissionDenied | Code::PathEscape);
    status.bytes == 0 && status.is_fault_there && fault.is_some_and(is_refused)
}

fn outcome(status: CopyStatus) -> Outcome {
    Outcome {
        bytes: status.bytes,
        elapsed: Duration::from_millis(status.elapsed_ms),
        channels: status.channels.into(),
        resumed_bytes: status.resumed_bytes,
        retransmitted_bytes: 0,
        digest: status.digest,
        target: status.target,
        time_shares: TimeShares::only(LimitedBy::Network),
        failures: Failures::default(),
        is_skipped: false,
        passage: Some(Passage::Direct),
        mtime_ns: status.mtime_ns,
    }
}
