//! Names of the source that the file system here may take for others: they come at last.

use std::path::Path;

use xdfs_proto::{Code, Fault};
use xdfs_store::Store as _;

use super::{Download, Fetching};
use crate::client::path_bytes;
use crate::paths::{Answer, Call};
use crate::tree::alike::{Ends, Looked, Names, Waiting, identity, judge};
use crate::tree::moving::{Report, levels_above};
use crate::tree::{ROUNDS, is_directory, join};

impl Ends for Download<'_> {
    fn source(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
        for entry in self.client.list(&join(self.source, directory)) {
            let entry = entry?;
            let path = join(directory, &entry.name);
            let is_directory = is_directory(Some(&entry.attributes));
            if !self.options.filter.leaves_out(&path, is_directory) {
                names(&entry.name, identity(&entry.attributes));
            }
        }
        Ok(())
    }

    fn target(&self, directory: &[u8], names: &mut Names<'_>) -> Result<(), Fault> {
        let path = join(&self.root, directory);
        let failed = |error: &std::io::Error| Fault::from_io("list a directory", &path, error);
        let here = xdfs_sys::fs::path_from_bytes(&path);
        for entry in here.and_then(std::fs::read_dir).map_err(|e| failed(&e))? {
            let entry = entry.map_err(|e| failed(&e))?;
            names(&path_bytes(Path::new(&entry.file_name())), None);
        }
        Ok(())
    }

    fn look(&self, paths: &[Vec<u8>]) -> Result<Vec<Looked>, Fault> {
        let store = self.beneath()?;
        let look = |path: &Vec<u8>| {
            let call = Call::Stat {
                path: path.clone(),
                follow: false,
            };
            match store.call(&call, &mut |_| Ok(())) {
                Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
                Ok(_) => Ok(None),
                Err(fault) if matches!(fault.code, Code::NotFound | Code::NotDirectory) => Ok(None),
                Err(fault) => Err(fault),
            }
        };
        Ok(paths.iter().map(look).collect())
    }
}

impl Download<'_> {
    /// Tries again what failed and may pass.
    pub(super) fn try_again(
        &self,
        state: &mut Fetching,
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
            self.open_up(levels_above(again.iter().chain(&ours)));
            self.fetch_again(again, self.options.overwrite, state, report)?;
            let ours = self.find_ours(ours, report);
            self.fetch_again(ours, true, state, report)?;
        }
        Ok(())
    }

    /// Fetches the names that waited, if they mean nothing else here.
    pub(super) fn fetch_waiting(
        &self,
        state: &mut Fetching,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        while !state.waiting.is_empty() && !report.is_stopped() {
            let round = state.waiting.take_round();
            let paths: Vec<_> = round.iter().map(|(path, _)| &path[..]).collect();
            let verdicts = judge(self, &paths)?;
            report.keep_again();
            let mut directories = Vec::new();
            for ((path, attributes), verdict) in round.into_iter().zip(verdicts) {
                let is_directory = is_directory(Some(&attributes));
                match verdict {
                    Ok(()) => {
                        directories.extend(is_directory.then(|| path.clone()));
                        self.sort(path, attributes, state, report)?;
                    }
                    Err(fault) if is_directory => report.lost_directory(&path, &fault),
                    Err(fault) => report.lost(&path, &fault),
                }
            }
            self.directories.found(directories.into_iter());
            self.pass(None, state, report)?;
            self.drain(state, report)?;
            self.try_again(state, report)?;
        }
        Ok(())
    }

    /// Gives files their further names.
    pub(super) fn link(&self, state: &mut Fetching, report: &mut Report<'_>) -> Result<(), Fault> {
        report.give_up_again();
        let mut late = Waiting::default();
        let (alike, links): (Vec<_>, Vec<_>) = std::mem::take(&mut state.links)
            .into_iter()
            .partition(|link| state.waiting.has_kind(&link.path));
        self.make_links(links, report)?;
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
            self.make_links(links, report)?;
        }
        Ok(())
    }
}
