//! Names of the source that the server's file system may take for others: they go at last.

use std::collections::{HashSet, VecDeque};

use xdfs_proto::{Code, Fault};

use super::known::identity_of;
use super::{LOOKS_MAX, Last, Sending, Upload};
use crate::client::path_bytes;
use crate::paths::{Answer, Call, PendingCall};
use crate::tree::alike::{Ends, Looked, Names, Waiting, identity, judge};
use crate::tree::links::{Link, sound};
use crate::tree::moving::{Report, levels_above};
use crate::tree::{ROUNDS, join};

impl Ends for Upload<'_> {
    fn source(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
        let here = self.local(directory);
        let failed =
            |error: &std::io::Error| Fault::from_io("list a directory", path_bytes(&here), error);
        for entry in std::fs::read_dir(&here).map_err(|e| failed(&e))? {
            let entry = entry.map_err(|e| failed(&e))?;
            let name = path_bytes(entry.file_name().as_ref());
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let path = join(directory, &name);
            if !self.options.filter.leaves_out(&path, is_directory) {
                names(&name, identity_of(&entry.path()));
            }
        }
        Ok(())
    }

    fn target(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
        for entry in self.client.list(&join(&self.root, directory)) {
            let entry = entry?;
            names(&entry.name, identity(&entry.attributes));
        }
        Ok(())
    }

    fn look(&self, paths: &[Vec<u8>]) -> Result<Vec<Looked>, Fault> {
        let mut looked = Vec::new();
        let mut looks: VecDeque<PendingCall> = VecDeque::new();
        let end = |look: PendingCall| match look.wait() {
            Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
            Ok(_) => Ok(None),
            Err(fault) if matches!(fault.code, Code::NotFound | Code::NotDirectory) => Ok(None),
            Err(fault) => Err(fault),
        };
        for path in paths {
            looks.push_back(self.client.start_call(Call::Stat {
                path: join(&self.root, path),
                follow: false,
            })?);
            if looks.len() >= LOOKS_MAX {
                looked.extend(looks.pop_front().map(end));
            }
        }
        looked.extend(looks.into_iter().map(end));
        Ok(looked)
    }
}

impl Upload<'_> {
    /// Tries again what failed and may pass.
    pub(super) fn try_again(
        &self,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        for round in 1..=ROUNDS {
            if report.is_stopped() {
                break;
            }
            let (again, ours) = report.take_again(round == ROUNDS);
            if again.is_empty() && ours.is_empty() {
                break;
            }
            self.open_up(levels_above(again.iter().chain(&ours)))?;
            self.send_again(again, self.options.overwrite, sending, report)?;
            let ours = self.find_ours(ours, report)?;
            self.send_again(ours, true, sending, report)?;
        }
        Ok(())
    }

    /// Sends the names that waited, if they mean nothing else there.
    pub(super) fn send_waiting(
        &self,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        while !sending.waiting.is_empty() && !report.is_stopped() {
            let round = sending.waiting.take_round();
            let mut roots = Vec::new();
            let paths: Vec<_> = round.iter().map(|found| &found.path[..]).collect();
            let verdicts = judge(self, &paths)?;
            for (found, verdict) in round.into_iter().zip(verdicts) {
                match verdict {
                    Ok(()) => roots.push(found),
                    Err(fault) if found.is_directory => report.lost_directory(&found.path, &fault),
                    Err(fault) => report.lost(&found.path, &fault),
                }
            }
            report.keep_again();
            self.pass(None, roots, sending, report)?;
            self.drain(sending, report)?;
            self.try_again(sending, report)?;
        }
        Ok(())
    }

    /// Gives files their further names. What was moved has its first names by now.
    pub(super) fn link(&self, sending: &mut Sending, report: &mut Report<'_>) -> Result<(), Fault> {
        let mut late = Waiting::default();
        let (alike, links): (Vec<_>, Vec<_>) = std::mem::take(&mut sending.links)
            .into_iter()
            .partition(|link| sending.waiting.has_kind(&link.path));
        self.send_links(links, report)?;
        alike.into_iter().for_each(|link| late.add(link));
        while !late.is_empty() && !report.is_stopped() {
            let round = late.take_round();
            let paths: Vec<_> = round.iter().map(|link| &link.path[..]).collect();
            let verdicts = judge(self, &paths)?;
            let mut links = Vec::new();
            for (link, verdict) in round.into_iter().zip(verdicts) {
                match verdict {
                    Ok(()) => links.push(link),
                    Err(fault) => report.lost(&link.path, &fault),
                }
            }
            self.send_links(links, report)?;
        }
        Ok(())
    }

    /// Gives files these further names.
    pub(in crate::tree) fn send_links(
        &self,
        links: Vec<Link>,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let links = sound(self, links, report)?;
        let send = |paths: Option<&HashSet<Vec<u8>>>, overwrite, report: &mut Report<'_>| {
            let links = links.iter();
            let wanted = links.filter(|l| paths.is_none_or(|paths| paths.contains(&l.path)));
            let wanted = wanted.map(|link| (&link.path, Last::Link(&link.first)));
            self.send_entries(wanted, overwrite, report)
        };
        let overwrite = self.options.overwrite;
        if self.skip.is_none() {
            return send(None, overwrite, report);
        }
        // An earlier run may have given these names to files that were sent again since.
        report.keep_again();
        send(None, overwrite, report)?;
        let (again, ours) = report.take_again(true);
        let ours = self.find_ours(ours, report)?;
        for (entries, overwrite) in [(again, overwrite), (ours, true)] {
            let paths = entries.into_iter().map(|again| again.path).collect();
            send(Some(&paths), overwrite, report)?;
        }
        Ok(())
    }
}
