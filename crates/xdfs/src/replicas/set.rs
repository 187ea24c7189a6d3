//! Sets of replicas, and what became of their sources.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xdfs_proto::{ChecksumValue, Code, Fault};

use super::version::FileVersion;
use crate::remote::RemotePlace;

/// A file and the places that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSet {
    /// The places, the one that is believed first before the others.
    pub places: Vec<RemotePlace>,
    /// The name of the file, by which it is copied into a directory.
    pub name: Vec<u8>,
    /// Its length in bytes, if it is known beforehand.
    pub length: Option<u64>,
    /// Its digest, if it is known beforehand. It decides between sources that differ, and the file
    /// isn't published without it.
    pub digest: Option<ChecksumValue>,
    /// The version that all places have on one storage. Then it is what is compared, in place of
    /// the content.
    pub version: Option<FileVersion>,
}

impl ReplicaSet {
    /// A set of which nothing is known beforehand, with the name of the file at the first place.
    ///
    /// # Errors
    /// There are no places, or one of them names no file.
    pub fn new(places: Vec<RemotePlace>) -> Result<Self, Fault> {
        let invalid = |cause: &str| Fault::new(Code::InvalidArgument, "plan the copy", cause);
        let is_file = |place: &&RemotePlace| !place.path.is_empty() && !place.path.ends_with(b"/");
        if let Some(other) = places.iter().find(|place| !is_file(place)) {
            let fault = invalid("the URL does not name a file").path(other.to_string());
            return Err(fault.hint("each of several sources is a file, and the same one"));
        }
        let first = places.first().ok_or_else(|| invalid("it has no sources"))?;
        let name = first.path.rsplit(|&byte| byte == b'/').next();
        Ok(Self {
            name: name.unwrap_or_default().to_vec(),
            places,
            length: None,
            digest: None,
            version: None,
        })
    }

    /// The places of a word that lists several, as [`Self::parts`] has them.
    ///
    /// # Errors
    /// One of the URLs can't be understood.
    #[must_use]
    pub fn listed(word: &str) -> Option<Result<Vec<RemotePlace>, Fault>> {
        let parts = Self::parts(word)?;
        Some(parts.into_iter().map(str::parse).collect())
    }

    /// The URLs of a word that lists several, with commas between them. A comma separates only
    /// where a URL follows; `%2C` stands for one that would. `None` for any other word.
    #[must_use]
    pub fn parts(word: &str) -> Option<Vec<&str>> {
        let mut parts = Vec::new();
        let mut rest = word;
        while let Some(at) = next_url(rest) {
            parts.push(&rest[..at]);
            rest = &rest[at + 1..];
        }
        parts.push(rest);
        let is_list = parts.len() > 1 && RemotePlace::is_remote(parts[0]);
        is_list.then_some(parts)
    }

    /// The set as one word: the URLs of its places, without secrets.
    #[must_use]
    pub fn text(&self) -> String {
        let all: Vec<_> = self.places.iter().map(RemotePlace::to_string).collect();
        all.join(",")
    }
}

/// The offset of the comma before the next URL.
fn next_url(text: &str) -> Option<usize> {
    let mut commas = text.match_indices(',').map(|(at, _)| at);
    commas.find(|at| RemotePlace::is_remote(&text[at + 1..]))
}

/// The share that a source had in a copy.
#[derive(Clone, Debug)]
pub struct ReplicaShare {
    /// The source.
    pub place: RemotePlace,
    /// It was reached, and asked for the file. Of many sources only some are.
    pub is_used: bool,
    /// Bytes of it that were passed on to the target.
    pub bytes: u64,
    /// Why it was no longer used; `None` if it was used to the end, or wasn't needed.
    pub dropped: Option<Fault>,
}

/// The shares of all sources of a set, while it is copied and after that. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ReplicaLog {
    sources: Arc<Mutex<Vec<Logged>>>,
    /// The log of all files, if this is the one of a file of a group.
    all: Option<Arc<Mutex<Vec<Logged>>>>,
}

#[derive(Clone, Debug)]
struct Logged {
    share: ReplicaShare,
    /// Everything that was passed on in this attempt is what its digests say.
    is_witness: bool,
    /// It was dropped only because others disagreed, before the whole was compared.
    is_outvoted: bool,
    /// When it was dropped.
    dropped_at: Option<Instant>,
}

impl Logged {
    fn drop_for(&mut self, fault: &Fault) {
        self.dropped_at = Some(Instant::now());
        self.share.dropped.get_or_insert_with(|| fault.clone());
    }
}

impl ReplicaLog {
    /// No shares yet.
    pub(super) fn new(set: &ReplicaSet) -> Self {
        let sources = set.places.iter().map(|place| Logged {
            share: ReplicaShare {
                place: place.clone(),
                is_used: false,
                bytes: 0,
                dropped: None,
            },
            is_witness: false,
            is_outvoted: false,
            dropped_at: None,
        });
        Self {
            sources: Arc::new(Mutex::new(sources.collect())),
            all: None,
        }
    }

    /// The log of one file of a group, of which this is the log of all files. Members that were
    /// dropped a short time ago aren't used, nor those that have lied. The first one is: without it
    /// there is no file.
    pub(super) fn of_file(&self, set: &ReplicaSet, short: Duration) -> Self {
        let log = Self::new(set);
        for (number, (own, known)) in log.lock().iter_mut().zip(&*self.lock()).enumerate() {
            let is_over = |at: Instant| at.elapsed() >= short;
            let fault = known.share.dropped.as_ref();
            let fault = fault.filter(|fault| match fault.code {
                _ if number == 0 => false,
                Code::IntegrityMismatch => true,
                // It was about another file.
                Code::SourceChanged => false,
                _ => !known.dropped_at.is_some_and(is_over),
            });
            own.share.dropped = fault.cloned();
        }
        let all = Some(Arc::clone(&self.sources));
        Self { all, ..log }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Logged>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the same to the entry of a source in this log and in that of all files.
    fn change(&self, source: usize, mut change: impl FnMut(&mut Logged)) {
        for log in [Some(&self.sources), self.all.as_ref()]
            .into_iter()
            .flatten()
        {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.get_mut(source).into_iter().for_each(&mut change);
        }
    }

    /// The shares, in the order of the set.
    #[must_use]
    pub fn shares(&self) -> Vec<ReplicaShare> {
        self.lock().iter().map(|own| own.share.clone()).collect()
    }

    pub(super) fn add(&self, source: usize, bytes: u64) {
        self.change(source, |own| {
            own.share.bytes = own.share.bytes.saturating_add(bytes);
        });
    }

    /// Notes that a source is used.
    pub(super) fn note_use(&self, source: usize) {
        self.change(source, |own| own.share.is_used = true);
        if let Some(all) = &self.all {
            // It is back since another file was copied.
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            let share = all.get_mut(source).map(|own| &mut own.share);
            share.map(|share| share.dropped.take_if(|fault| may_recover(fault)));
        }
    }

    /// Notes that everything was compared with the digests of a source.
    pub(super) fn note_witness(&self, source: usize) {
        if let Some(own) = self.lock().get_mut(source) {
            own.is_witness = true;
        }
    }

    /// Notes that others decided against a source.
    pub(super) fn note_outvoted(&self, source: usize) {
        if let Some(own) = self.lock().get_mut(source) {
            own.is_outvoted = true;
        }
    }

    /// Drops the sources by whose digests the whole was wrong, although they said otherwise, and
    /// takes back those against which they had decided. Returns whether it has dropped any.
    pub(super) fn drop_witnesses(&self, fault: impl Fn(usize) -> Fault) -> bool {
        let mut has_dropped = false;
        for (number, own) in self.lock().iter_mut().enumerate() {
            if own.is_witness && own.share.dropped.is_none() {
                own.share.dropped = Some(fault(number));
                has_dropped = true;
            } else if std::mem::take(&mut own.is_outvoted) {
                own.share.dropped = None;
            }
        }
        has_dropped
    }

    /// Notes why a source isn't used any more.
    pub(super) fn drop_source(&self, source: usize, fault: &Fault) {
        self.change(source, |own| own.drop_for(fault));
    }

    /// Uses a source again that was dropped, if it may have recovered. Returns whether it may be
    /// used.
    pub(super) fn take_back(&self, source: usize) -> bool {
        let mut sources = self.lock();
        let Some(own) = sources.get_mut(source) else {
            return false;
        };
        own.share.dropped.take_if(|fault| may_recover(fault));
        own.share.dropped.is_none()
    }

    /// Begins another attempt, in which sources that may have recovered are used again.
    pub(super) fn begin_again(&self) {
        for own in &mut *self.lock() {
            own.is_witness = false;
            own.share.dropped.take_if(|fault| may_recover(fault));
        }
    }

    /// Whether a source was dropped.
    pub(super) fn is_dropped(&self, source: usize) -> bool {
        let sources = self.lock();
        let found = sources.get(source);
        found.is_none_or(|own| own.share.dropped.is_some())
    }
}

/// Whether a source that was dropped for this reason may be used in another attempt. One that has
/// lied isn't, and one that refuses would refuse again.
fn may_recover(fault: &Fault) -> bool {
    fault.code != Code::IntegrityMismatch && fault.code != Code::SourceChanged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_separates_only_before_a_url() {
        let paths = |word: &str| {
            let places = ReplicaSet::listed(word)?.unwrap();
            let text = |place: RemotePlace| String::from_utf8(place.path).unwrap();
            Some(places.into_iter().map(text).collect::<Vec<_>>())
        };
        let both = |one: &str, other: &str| Some(vec![one.to_owned(), other.to_owned()]);
        assert_eq!(paths("xdfs://a/f,xdfs://b/g"), both("/f", "/g"));
        assert_eq!(paths("ssh://a/f,ftps://b/g"), both("/f", "/g"));
        assert_eq!(paths("xdfs://a/x,y,xdfs://b/,z"), both("/x,y", "/,z"));
        assert_eq!(paths("xdfs+tcp,tls://a/f,xdfs://b/g"), both("/f", "/g"));
        assert_eq!(paths("xdfs://a/f%2Cxdfs://b/g"), None);
        assert_eq!(paths("xdfs://a/f,http://b/g"), None);
        for single in ["xdfs://a/f", "xdfs://a/x,y", "f,xdfs://b/g", "a,b", ""] {
            assert_eq!(paths(single), None, "{single}");
        }
        assert!(ReplicaSet::listed("xdfs://a/f,xdfs://").unwrap().is_err());
    }

    #[test]
    fn each_place_has_to_name_a_file() {
        let set = |word: &str| ReplicaSet::new(ReplicaSet::listed(word).unwrap().unwrap());
        assert_eq!(set("xdfs://a/d/f,xdfs://b/g").unwrap().name, b"f");
        for bad in ["xdfs://a/f,xdfs://b", "xdfs://a/d/,xdfs://b/f"] {
            assert!(set(bad).unwrap_err().cause.contains("name a file"), "{bad}");
        }
        assert!(ReplicaSet::new(Vec::new()).is_err());
    }

    #[test]
    fn secrets_are_not_in_the_text() {
        let word = "xdfs://a/f?ticket=abc,ftp://u:pw@b/g";
        let set = ReplicaSet::new(ReplicaSet::listed(word).unwrap().unwrap()).unwrap();
        assert_eq!(set.text(), "xdfs://a:2799/f,ftp://u@b:21/g");
    }
}
