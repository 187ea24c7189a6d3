//! Detects listings that never end, since a server may be faulty or hostile.

use xdfs_proto::{Code, Fault};

use super::{Answer, Call, Entry};

const OPERATION: &str = "list";

/// The progress of a listing through its parts and calls. It keeps one cursor.
#[derive(Clone, Debug)]
pub(super) struct ListingGuard {
    path: Vec<u8>,
    /// An earlier cursor (Brent's algorithm): it is replaced after 1, 2, 4, 8... cursors, and so at
    /// some point stays for longer than any cycle, and is met again.
    passed: Vec<u8>,
    /// Cursors until the next replacement, and the distance between the last two.
    until_next: u64,
    stride: u64,
    /// Whether the current call has returned entries.
    has_entries: bool,
    /// Bytes that may still be listed.
    left: u64,
    bytes_max: u64,
}

impl ListingGuard {
    /// The guard of a new listing of at most `bytes_max` bytes.
    pub(super) fn new(call: &Call, bytes_max: u64) -> Self {
        let passed = match call {
            Call::List { cursor, .. } => cursor.clone(),
            _ => Vec::new(),
        };
        Self {
            path: call.path().to_vec(),
            passed,
            until_next: 1,
            stride: 1,
            has_entries: false,
            left: bytes_max,
            bytes_max,
        }
    }

    /// The next call continues the listing.
    pub(super) fn next_call(&mut self) {
        self.has_entries = false;
    }

    /// Checks the next part. Other answers than entries are ignored.
    pub(super) fn pass(&mut self, answer: &Answer) -> Result<(), Fault> {
        let Answer::Entries { entries, cursor } = answer else {
            return Ok(());
        };
        let bytes = |entry: &Entry| (size_of::<Entry>() + entry.name.len()) as u64;
        let left = self.left.checked_sub(entries.iter().map(bytes).sum());
        self.left = left.ok_or_else(|| self.too_much())?;
        self.has_entries |= !entries.is_empty();
        match cursor {
            None => Ok(()),
            Some(_) if !self.has_entries => {
                Err(self.endless("a call returned no entries and another cursor"))
            }
            // It repeats the cursor of the part before.
            Some(_) if entries.is_empty() => Ok(()),
            Some(cursor) if *cursor == self.passed => Err(self.endless("a cursor was repeated")),
            Some(cursor) => {
                self.until_next -= 1;
                if self.until_next == 0 {
                    self.stride = self.stride.saturating_mul(2);
                    self.until_next = self.stride;
                    self.passed.clone_from(cursor);
                }
                Ok(())
            }
        }
    }

    fn endless(&self, how: &str) -> Fault {
        let cause = format!("the server's listing of this directory never ends: {how}");
        Fault::new(Code::ProtocolViolation, OPERATION, cause)
            .path(&self.path)
            .hint("the server is at fault: report it to its operator")
            // No further answer can be trusted.
            .ending_session()
    }

    fn too_much(&self) -> Fault {
        let cause = format!(
            "the server lists more in this directory than the {} bytes of names and attributes \
             that are taken of one",
            self.bytes_max
        );
        Fault::new(Code::LimitExceeded, OPERATION, cause)
            .path(&self.path)
            .hint("if the directory is that large, spread its files over several")
    }
}

#[cfg(test)]
mod tests {
    use xdfs_proto::path::{Attributes, FileKind};

    use super::*;

    fn list(cursor: &[u8]) -> Call {
        Call::List {
            path: b"/d".to_vec(),
            cursor: cursor.to_vec(),
            entries_max: u32::MAX,
        }
    }

    fn part(names: &[&str], cursor: Option<u32>) -> Answer {
        let attributes = Attributes {
            kind: FileKind::File,
            size: 0,
            allocated: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            links: 1,
            device: 0,
            inode: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        };
        let entry = |name: &&str| Entry {
            name: name.as_bytes().to_vec(),
            attributes: attributes.clone(),
        };
        Answer::Entries {
            entries: names.iter().map(entry).collect(),
            cursor: cursor.map(|cursor| cursor.to_be_bytes().to_vec()),
        }
    }

    #[test]
    fn every_circle_is_found_out_and_nothing_else() {
        for before in 0..20 {
            for round in 1..20 {
                let mut guard = ListingGuard::new(&list(b""), u64::MAX);
                let cursors = (0..before).chain((before..before + round).cycle());
                let mut seen = 0;
                let fault = cursors
                    .map(|cursor| guard.pass(&part(&["n"], Some(cursor))))
                    .inspect(|_| seen += 1)
                    .find_map(Result::err)
                    .unwrap();
                assert_eq!(fault.code, Code::ProtocolViolation);
                assert_eq!(fault.path, b"/d");
                assert!(seen > before + round, "{before} {round}: {seen}");
                assert!(seen <= 4 * (before + round), "{before} {round}: {seen}");
            }
        }
        let mut guard = ListingGuard::new(&list(b""), u64::MAX);
        for cursor in 0..10_000 {
            guard.pass(&part(&["n"], Some(cursor))).unwrap();
        }
    }

    #[test]
    fn a_call_that_gives_nothing_does_not_go_on() {
        let mut guard = ListingGuard::new(&list(b""), u64::MAX);
        guard.pass(&part(&["n"], Some(1))).unwrap();
        // After the requested number of entries, the end repeats the last cursor.
        guard.pass(&part(&[], Some(1))).unwrap();
        guard.next_call();
        let fault = guard.pass(&part(&[], Some(2))).unwrap_err();
        assert_eq!(fault.code, Code::ProtocolViolation);
        let mut empty = ListingGuard::new(&list(b""), u64::MAX);
        empty.pass(&part(&[], None)).unwrap();
    }

    #[test]
    fn a_call_does_not_end_where_it_began() {
        let mut guard = ListingGuard::new(&list(&7_u32.to_be_bytes()), u64::MAX);
        let fault = guard.pass(&part(&["n"], Some(7))).unwrap_err();
        assert_eq!(fault.code, Code::ProtocolViolation);
    }

    #[test]
    fn names_are_bounded_over_all_calls() {
        let entry = size_of::<Entry>() as u64 + 4;
        let mut guard = ListingGuard::new(&list(b""), 3 * entry);
        guard.pass(&part(&["name", "name"], Some(1))).unwrap();
        guard.next_call();
        guard.pass(&part(&["name"], Some(2))).unwrap();
        let fault = guard.pass(&part(&["n"], None)).unwrap_err();
        assert_eq!(fault.code, Code::LimitExceeded);
        assert_eq!(fault.path, b"/d");
    }
}
