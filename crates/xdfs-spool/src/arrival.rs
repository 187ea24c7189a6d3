//! The part of a parcel that has arrived, as the index keeps it: the version of its source with the
//! metadata that go along, and the durable fragments with the states of their digests.

use xdfs_proto::digest::{DigestKind, Fragment, FragmentMap, FragmentState};
use xdfs_proto::{ByteRange, SourceTag};

/// The part that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// A random number. An arrival that begins again from nothing has another one, also if its
    /// source says that it is the same: what went ahead of the first one doesn't count then.
    pub(crate) began: u64,
    pub(crate) tag: SourceTag,
    pub(crate) block_size: u32,
    pub(crate) mode: Option<u32>,
    pub(crate) mtime_ns: Option<i64>,
    pub(crate) durable: FragmentMap,
}

impl Arrival {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.began.to_be_bytes().to_vec();
        bytes.extend(self.tag.0);
        bytes.push(match self.durable.kind() {
            DigestKind::Crc64Nvme => 1,
            DigestKind::Blake3 => 2,
            _ => 0,
        });
        bytes.extend(self.block_size.to_be_bytes());
        bytes.push(self.mode.is_some().into());
        bytes.extend(self.mode.unwrap_or(0).to_be_bytes());
        bytes.push(self.mtime_ns.is_some().into());
        bytes.extend(self.mtime_ns.unwrap_or(0).to_be_bytes());
        for fragment in self.durable.fragments() {
            bytes.extend(fragment.range.start.to_be_bytes());
            bytes.extend(fragment.range.end.to_be_bytes());
            match fragment.state {
                FragmentState::None => {}
                FragmentState::Crc64Nvme(state) => bytes.extend(state.to_be_bytes()),
                FragmentState::Blake3 { node, root } => {
                    bytes.extend(node);
                    bytes.extend(root);
                }
            }
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut at = Reader(bytes);
        let began = u64::from_be_bytes(at.take()?);
        let tag = SourceTag(at.take()?);
        let kind = match at.take::<1>()? {
            [0] => DigestKind::None,
            [1] => DigestKind::Crc64Nvme,
            [2] => DigestKind::Blake3,
            _ => return None,
        };
        let block_size = u32::from_be_bytes(at.take()?);
        let has_mode = at.flag()?;
        let mode = u32::from_be_bytes(at.take()?);
        let has_mtime = at.flag()?;
        let mtime_ns = i64::from_be_bytes(at.take()?);
        let mut durable = FragmentMap::new(kind);
        while !at.0.is_empty() {
            let range = ByteRange {
                start: u64::from_be_bytes(at.take()?),
                end: u64::from_be_bytes(at.take()?),
            };
            let state = match kind {
                DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(u64::from_be_bytes(at.take()?)),
                DigestKind::Blake3 => FragmentState::Blake3 {
                    node: at.take()?,
                    root: at.take()?,
                },
                _ => FragmentState::None,
            };
            let is_possible = range.start < range.end;
            if !is_possible || !durable.insert(Fragment { range, state }) {
                return None;
            }
        }
        Some(Self {
            began,
            tag,
            block_size,
            mode: has_mode.then_some(mode),
            mtime_ns: has_mtime.then_some(mtime_ns),
            durable,
        })
    }

    /// Bytes that have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.durable.ranges().total()
    }
}

/// Takes fields off the front of a slice.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take::<1>()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_read_as_they_were_written() {
        let states = [
            FragmentState::None,
            FragmentState::Crc64Nvme(77),
            FragmentState::Blake3 {
                node: [1; 32],
                root: [2; 32],
            },
        ];
        for state in states {
            let mut durable = FragmentMap::new(state.kind());
            for start in [0, 1 << 20] {
                let range = ByteRange {
                    start,
                    end: start + (1 << 16),
                };
                assert!(durable.insert(Fragment { range, state }));
            }
            let arrival = Arrival {
                began: 9 << 60,
                tag: SourceTag([5; 16]),
                block_size: 4096,
                mode: Some(0o600),
                mtime_ns: None,
                durable,
            };
            let bytes = arrival.encode();
            let read = Arrival::decode(&bytes).unwrap();
            assert_eq!((read.tag, read.block_size), (arrival.tag, 4096));
            assert_eq!((read.mode, read.mtime_ns), (Some(0o600), None));
            assert_eq!(read.began, arrival.began);
            let all = |arrival: &Arrival| arrival.durable.fragments().copied().collect::<Vec<_>>();
            assert_eq!(all(&read), all(&arrival));
            assert_eq!(read.bytes(), 2 << 16);
            for cut in [1, 8, 24, 25, 28, 30, 40, bytes.len() - 1] {
                assert!(Arrival::decode(&bytes[..cut]).is_none(), "{cut}");
            }
        }
    }
}
