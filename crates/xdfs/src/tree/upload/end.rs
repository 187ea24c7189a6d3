//! What comes when parts of a tree are at the server: directories that are whole are set, and what
//! failed is tried again.

use std::collections::VecDeque;

use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PACK_BYTES_MAX, PackReader, PackWriter,
};
use xdfs_proto::{Fault, Limits};
use xdfs_store::local::Added;

use super::{LOOKS_MAX, Last, Sending, Upload};
use crate::Answer;
use crate::paths::{Call, PendingCall};
use crate::tree::journal::{local_mark, mark_of};
use crate::tree::moving::{Again, Kind, Packs, Report, ends_session, opening};
use crate::tree::{WHOLE_AT_ONCE, join};

impl Upload<'_> {
    /// Begins to set what is known of directories in which nothing more is made. One such pack is
    /// under way at a time: those below have to be set before those above, since one above may
    /// take away the right to get there.
    pub(super) fn start_closing(
        &self,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        if sending.closing.is_some() {
            return Ok(());
        }
        let mut pack = self.begin_pack();
        let mut closing = Vec::new();
        while let Some(whole) = sending.whole.front_mut() {
            let metadata = match whole.is_absent {
                true => None,
                false => self.metadata_of_directory(&whole.path),
            };
            let added = closing.len() < WHOLE_AT_ONCE
                && match metadata {
                    Some(mut metadata) => {
                        let mode = metadata.mode.map(|mode| whole.mode(mode.into()));
                        metadata.mode = mode.and_then(|mode| u16::try_from(mode).ok());
                        whole.mtime_ns = metadata.mtime_ns;
                        pack.entry(&Entry {
                            path: &whole.path,
                            metadata,
                            content: Content::Attributes,
                        })
                    }
                    // It was not made, or is gone or something else by now.
                    None => {
                        if let (Some(whole), Some(tracker)) =
                            (sending.whole.pop_front(), &mut report.tracker)
                        {
                            tracker.closed(whole, false);
                        }
                        continue;
                    }
                };
            if !added {
                break;
            }
            closing.extend(sending.whole.pop_front());
        }
        if !closing.is_empty() {
            let (memory, length) = pack.finish();
            let pack = self.start_pack(memory, length, Vec::new(), true)?;
            sending.closing = Some((pack.transfer, closing));
        }
        Ok(())
    }

    /// Waits for the directories that are being set.
    pub(super) fn end_closing(
        &self,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let Some((transfer, closing)) = sending.closing.take() else {
            return Ok(());
        };
        let ended = transfer.wait_for_pack();
        if let Err(fault) = &ended
            && ends_session(fault)
        {
            return Err(fault.clone());
        }
        for (number, whole) in (0..).zip(closing) {
            let fault = match &ended {
                Ok(failures) => failures.of(number),
                Err(fault) => Some(fault),
            };
            if let Some(fault) = fault {
                report.failed(&whole.path, &fault.clone().path(&whole.path));
            }
            if let Some(tracker) = &mut report.tracker {
                tracker.closed(whole, fault.is_none());
            }
        }
        Ok(())
    }

    /// Sets what is known of all directories that aren't set yet. When the tree is stopped those
    /// that aren't whole are left as they are.
    pub(super) fn close_all(
        &self,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let is_stopped = report.is_stopped();
        let Some(tracker) = &mut report.tracker else {
            // Those below first.
            let directories = std::mem::take(&mut sending.directories);
            let directories = directories.iter().rev();
            let directories = directories.map(|path| (path, Last::Directory));
            return self.send_entries(directories, self.options.overwrite, report);
        };
        sending.whole.extend(tracker.take_whole(1));
        if !is_stopped {
            sending.whole.extend(tracker.take_rest());
        }
        loop {
            self.end_closing(sending, report)?;
            self.start_closing(sending, report)?;
            if sending.closing.is_none() {
                return Ok(());
            }
        }
    }

    /// Gives the owner of directories there what is needed to go on in them. They get their modes
    /// when they are whole.
    pub(super) fn open_up(&self, levels: Vec<Vec<Vec<u8>>>) -> Result<(), Fault> {
        for level in levels {
            let mut pack = self.begin_pack();
            for paths in level.chunks(LOOKS_MAX) {
                let looks = paths.iter().map(|path| {
                    let there = join(&self.root, path);
                    let follow = false;
                    Ok((
                        path,
                        self.client.start_call(Call::Stat {
                            path: there,
                            follow,
                        })?,
                    ))
                });
                let looks: Vec<_> = looks.collect::<Result<_, Fault>>()?;
                for (path, look) in looks {
                    // What can't be seen or set is told by what is made in it.
                    let Ok(Answer::Attributes(found)) = look.wait() else {
                        continue;
                    };
                    let is_kept = path.is_empty() && self.into_there;
                    let Some(entry) = opening(path, &found).filter(|_| !is_kept) else {
                        continue;
                    };
                    if !pack.entry(&entry) {
                        self.set_now(std::mem::replace(&mut pack, self.begin_pack()))?;
                        // A path is shorter than any pack.
                        let _ = pack.entry(&entry);
                    }
                }
            }
            self.set_now(pack)?;
        }
        Ok(())
    }

    /// Carries out a pack that sets attributes.
    pub(in crate::tree) fn set_attributes(&self, pack: Vec<u8>) -> Result<Failures, Fault> {
        let length = pack.len();
        let pack = self.start_pack(pack, length, Vec::new(), true)?;
        pack.transfer.wait_for_pack()
    }

    fn set_now(&self, pack: PackWriter) -> Result<(), Fault> {
        if pack.is_empty() {
            return Ok(());
        }
        let pack = self.start_pack_of(pack, Vec::new(), true)?;
        match pack.transfer.wait_for_pack() {
            Err(fault) if ends_session(&fault) => Err(fault),
            _ => Ok(()),
        }
    }

    /// Tries entries again.
    pub(super) fn send_again(
        &self,
        again: Vec<Again>,
        overwrite: bool,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        if again.is_empty() {
            return Ok(());
        }
        let mut gather = self.pack_source()?;
        let mut pack = self.begin_pack();
        for Again { path, mark, .. } in again {
            if report.is_stopped() {
                break;
            }
            let mut added = gather.add(&path, &mut pack);
            if matches!(added, Added::Full) {
                let full = std::mem::replace(&mut pack, self.begin_pack());
                self.push(self.start_full(full, overwrite)?, sending, report)?;
                added = gather.add(&path, &mut pack);
            }
            match added {
                Added::Done if pack.len() >= self.cut.pack_bytes_max => {
                    let full = std::mem::replace(&mut pack, self.begin_pack());
                    self.push(self.start_full(full, overwrite)?, sending, report)?;
                }
                Added::Done => {}
                Added::Full | Added::Large(_) => {
                    self.start_large(path, overwrite, sending, report)?;
                }
                Added::Failed(fault) => report.missed(&path, false, mark, fault),
            }
        }
        if !pack.is_empty() {
            self.push(self.start_full(pack, overwrite)?, sending, report)?;
        }
        self.drain(sending, report)
    }

    /// A pack that sets what is kept of a file.
    pub(in crate::tree) fn kept_of(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut gather = self.pack_source()?;
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        match gather.add_attributes(path, &mut pack) {
            Added::Failed(fault) => Err(fault),
            _ => {
                let (mut memory, length) = pack.finish();
                memory.truncate(length);
                Ok(memory)
            }
        }
    }

    /// Gives large files that are there what else is kept of them. They are moved then.
    pub(super) fn dress(
        &self,
        sending: &mut Sending,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let limits = Limits::default();
        let (mut pack, mut items) = (self.begin_pack(), Vec::new());
        for (item, kept) in sending.large.take_bare() {
            for entry in PackReader::new(&kept, &limits).map_while(Result::ok) {
                if !pack.entry(&entry) {
                    let full = std::mem::replace(&mut pack, self.begin_pack());
                    let full = self.start_pack_of(full, std::mem::take(&mut items), true)?;
                    self.push(full, sending, report)?;
                    // It had room in a pack of its own.
                    let _ = pack.entry(&entry);
                }
            }
            items.push(item);
        }
        if !pack.is_empty() {
            let last = self.start_pack_of(pack, items, true)?;
            self.push(last, sending, report)?;
        }
        Ok(())
    }

    /// Of entries that stand at the target, those that an earlier run moved there without claiming
    /// them, by their size and time. The others are failures.
    pub(super) fn find_ours(
        &self,
        found: Vec<Again>,
        report: &mut Report<'_>,
    ) -> Result<Vec<Again>, Fault> {
        let mut ours = Vec::new();
        let mut looks: VecDeque<(Again, PendingCall)> = VecDeque::new();
        let mut end = |(again, look): (Again, PendingCall), report: &mut Report<'_>| {
            let there = match look.wait() {
                Ok(Answer::Attributes(attributes)) => mark_of(&attributes),
                Err(fault) if ends_session(&fault) => return Err(fault),
                _ => None,
            };
            let skip = self.skip.as_ref();
            let is_ours = skip
                .zip(there)
                .zip(again.mark)
                .is_some_and(|((skip, there), wanted)| skip.is_ours(&again.path, there, wanted));
            if is_ours {
                ours.push(again);
            } else {
                report.lost(&again.path, &again.fault);
            }
            Ok(())
        };
        for again in found {
            let look = self.client.start_call(Call::Stat {
                path: join(&self.root, &again.path),
                follow: false,
            })?;
            looks.push_back((again, look));
            if looks.len() >= LOOKS_MAX
                && let Some(first) = looks.pop_front()
            {
                end(first, report)?;
            }
        }
        for look in looks {
            end(look, report)?;
        }
        Ok(ours)
    }

    /// Sends what comes last.
    pub(super) fn send_entries<'e>(
        &self,
        entries: impl Iterator<Item = (&'e Vec<u8>, Last<'e>)>,
        overwrite: bool,
        report: &mut Report<'_>,
    ) -> Result<(), Fault> {
        let start = |pack: PackWriter| {
            let mut pack = self.start_full(pack, overwrite)?;
            for item in pack.items.iter_mut().filter(|i| i.kind == Kind::Link) {
                item.mark = local_mark(&self.local(&item.path));
            }
            Ok::<_, Fault>(pack)
        };
        let mut packs = Packs::new();
        let mut pack = self.begin_pack();
        for (path, last) in entries {
            let (content, metadata) = match last {
                Last::Link(first) => (Content::HardLink(first), Metadata::default()),
                Last::Directory => match self.metadata_of_directory(path) {
                    Some(metadata) => (Content::Attributes, metadata),
                    // It is gone, or something else by now.
                    None => continue,
                },
            };
            let entry = Entry {
                path,
                metadata,
                content,
            };
            if !pack.entry(&entry) {
                let full = std::mem::replace(&mut pack, self.begin_pack());
                packs.push(start(full)?);
                if packs.is_full()
                    && let Some(pack) = packs.take()
                {
                    self.wait_for_pack(pack, report)?;
                }
                // A path is shorter than any pack.
                let _ = pack.entry(&entry);
            }
        }
        if !pack.is_empty() {
            packs.push(start(pack)?);
        }
        while let Some(pack) = packs.take() {
            self.wait_for_pack(pack, report)?;
        }
        Ok(())
    }
}
