//! Entries that were moved and aren't durable yet. They are lost if the server's machine crashes,
//! and a broken session may be a sign of that.

use xdfs_proto::file::{FileAnswer, FileCall, FileFlags, FileOwner};
use xdfs_proto::{Code, Fault};

use super::moving::{Report, ServerRun};
use super::options::Durability;
use super::run::TreeRun;
use super::version::{looks_like, mark_of};
use crate::paths::{Answer, Call};

impl TreeRun<'_> {
    /// Has the report record moved entries, in case a session breaks. With `trusts_marks` an entry
    /// at the target with the kind, size and time of the source is taken for the one in flight.
    pub(super) fn follow_sessions(&self, report: &mut Report<'_>, trusts_marks: bool) {
        report.trusts_marks = trusts_marks;
        report.unsynced_generation = self.session.generation();
        report.keeps_unsynced = self.target.is_remote()
            && self.session.may_reconnect()
            && self.options.durability != Durability::None
            && !self.options.parameters.dry_run;
    }

    /// Makes everything that was moved durable.
    ///
    /// # Errors
    /// The synchronisation failed, or the server lost something.
    pub(super) fn sync_target(&self, report: &mut Report<'_>) -> Result<(), Fault> {
        loop {
            self.verify_unsynced(report)?;
            self.target.start_sync().wait()?;
            if self.session.generation() == report.unsynced_generation {
                report.unsynced.clear();
                return Ok(());
            }
        }
    }

    /// Checks that the target still has the entries that were moved in an earlier session and
    /// aren't durable: the server's machine may have crashed in between.
    ///
    /// # Errors
    /// An entry is missing or differs.
    pub(super) fn verify_unsynced(&self, report: &mut Report<'_>) -> Result<(), Fault> {
        let generation = self.session.generation();
        if generation == report.unsynced_generation {
            return Ok(());
        }
        match report.trusts_marks {
            true => self.find_unsynced(report)?,
            false => self.verify_server_run(report)?,
        }
        report.unsynced_generation = generation;
        Ok(())
    }

    fn find_unsynced(&self, report: &Report<'_>) -> Result<(), Fault> {
        let unsynced = || report.syncing.iter().chain(&report.unsynced);
        let found = self.target.look_up(unsynced().map(|(path, _)| &path[..]));
        for ((path, mark), found) in unsynced().zip(found) {
            let is_there = match (found, mark) {
                (Err(fault), _) if fault.ends_session => return Err(fault),
                (Ok(Some(found)), Some(mark)) => {
                    mark_of(&found).is_some_and(|found| looks_like(found, *mark))
                }
                (Ok(Some(_)), None) => true,
                _ => false,
            };
            if !is_there {
                let cause = "it had arrived, and is gone or differs after the connection broke";
                return Err(lost(cause, self.target.path(path)));
            }
        }
        Ok(())
    }

    /// Checks the run of the server. Where an old entry at the target may look like its
    /// replacement, only that shows whether anything was lost.
    fn verify_server_run(&self, report: &mut Report<'_>) -> Result<(), Fault> {
        let earlier = std::mem::take(&mut report.server_run);
        if report.syncing.is_empty() && report.unsynced.is_empty() {
            return Ok(());
        }
        let now = match &earlier {
            ServerRun::Known { file, .. } => self.ask_server_run(file)?,
            other => other.clone(),
        };
        match (&earlier, &now) {
            (ServerRun::Known { run: earlier, .. }, ServerRun::Known { run, .. })
                if run == earlier =>
            {
                report.server_run = now;
                Ok(())
            }
            (ServerRun::Known { .. }, ServerRun::Known { .. }) => {
                let cause = "the server's machine restarted before what had arrived was durable";
                Err(lost(cause, self.target.root().to_vec()))
            }
            _ => {
                let cause = "the connection broke before what had arrived was durable, and it \
                             can't be found out whether the server's machine restarted";
                Err(lost(cause, self.target.root().to_vec()))
            }
        }
    }

    /// Learns the run of the server from a file that has arrived, if that will be needed.
    ///
    /// # Errors
    /// The session broke; there is another one.
    pub(super) fn learn_server_run(
        &self,
        file: &[u8],
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let is_needed = report.keeps_unsynced && !report.trusts_marks;
        if is_needed && matches!(report.server_run, ServerRun::NotAsked) {
            let generation = self.session.generation();
            report.server_run = self.ask_server_run(file).or_else(|fault| {
                self.session.recover(generation, &fault)?;
                Err(fault)
            })?;
        }
        Ok(())
    }

    /// Opens a file to learn the run of the server.
    ///
    /// # Errors
    /// The session broke.
    fn ask_server_run(&self, file: &[u8]) -> Result<ServerRun, Fault> {
        let mut owner = [0; 16];
        if getrandom::fill(&mut owner).is_err() {
            return Ok(ServerRun::Unknown);
        }
        let ask = |call| {
            let (_, pending) = self.session.start_call(Call::File(call));
            pending?.wait()
        };
        let opened = ask(FileCall::Open {
            path: self.target.path(file),
            flags: FileFlags {
                read: true,
                ..FileFlags::default()
            },
            mode: None,
            owner: FileOwner(owner),
            identity: None,
        });
        match opened {
            Ok(Answer::File(FileAnswer::Opened { handle, run, .. })) => {
                ask(FileCall::Close { handle })?;
                let file = file.to_vec();
                Ok(ServerRun::Known { run, file })
            }
            Err(fault) if fault.ends_session => Err(fault),
            _ => Ok(ServerRun::Unknown),
        }
    }
}

/// The fault of an entry at the target that may not be the one that arrived there.
fn lost(cause: &str, path: Vec<u8>) -> Fault {
    Fault::new(Code::Stale, "copy", cause)
        .path(path)
        .hint("run the same command again: it copies what the target lacks")
}
