//! Cost of calls against the user's rate limit: the bytes that the server reads, writes or moves
//! for them.

use xdfs_proto::Fault;
use xdfs_proto::file::{FileAnswer, FileCall};
use xdfs_proto::path::{Answer, Call};

/// Cost in bytes of each entry removed with a tree: about what file systems write for it.
const REMOVED_BYTES: u64 = 4096;

/// Whether a call has a cost, so that it waits for the rate limit.
pub(crate) fn is_costly(call: &Call) -> bool {
    match call {
        Call::Checksum { .. }
        | Call::Copy { .. }
        | Call::RemoveTree { .. }
        | Call::Signatures { .. }
        | Call::Seed(_) => true,
        Call::File(call) => matches!(
            call,
            FileCall::Read { .. } | FileCall::Write { .. } | FileCall::Append { .. }
        ),
        _ => false,
    }
}

/// Cost of a completed call in bytes. `passed` is what it read, even if it failed. The progress of
/// other failed calls is unknown: they cost nothing, as do refusals.
pub(crate) fn cost(call: &Call, passed: u64, answer: &Result<Answer, Fault>) -> u64 {
    match (call, answer) {
        // Copied bytes count once, as in a transfer.
        (
            Call::Checksum { .. } | Call::Copy { .. } | Call::Signatures { .. } | Call::Seed(_),
            _,
        ) => passed,
        (call, Ok(answer)) => cost_of_done(call, answer),
        _ => 0,
    }
}

fn cost_of_done(call: &Call, answer: &Answer) -> u64 {
    match (call, answer) {
        (Call::RemoveTree { .. }, Answer::Removed { entries }) => {
            entries.saturating_mul(REMOVED_BYTES)
        }
        (Call::File(FileCall::Read { .. }), Answer::File(FileAnswer::Data { bytes, .. })) => {
            bytes.len() as u64
        }
        (Call::File(FileCall::Write { bytes, .. }), _) => bytes.len() as u64,
        (
            Call::File(FileCall::Append { .. }),
            Answer::File(FileAnswer::Appended { length, .. }),
        ) => u64::from(*length),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use xdfs_proto::Code;
    use xdfs_proto::SourceTag;
    use xdfs_proto::delta::Seed;
    use xdfs_proto::digest::{ChecksumKind, DigestKind};

    use super::*;

    #[test]
    fn failed_calls_are_charged_for_reads() {
        let path = b"f".to_vec();
        let calls = [
            Call::Checksum {
                path: path.clone(),
                offset: 0,
                length: None,
                kind: ChecksumKind::Blake3,
            },
            Call::Copy {
                from: path.clone(),
                to: path.clone(),
                overwrite: true,
            },
            Call::Signatures {
                path: path.clone(),
                digest: DigestKind::Blake3,
                block_bytes: 4096,
                first: 2,
                count: 10,
            },
            Call::Seed(Box::new(Seed {
                from: path.clone(),
                to: path,
                overwrite: true,
                sparse: false,
                tag: SourceTag::default(),
                length: 4096,
                digest: DigestKind::Crc64Nvme,
                block_bytes: 1024,
                pieces: Vec::new(),
            })),
        ];
        let changed = Err(Fault::new(Code::SourceChanged, "", ""));
        for call in &calls {
            assert!(is_costly(call));
            for passed in [0, 1, 1 << 40] {
                assert_eq!(cost(call, passed, &changed), passed);
                let done = Ok(Answer::Copied { bytes: 3 });
                assert_eq!(cost(call, passed, &done), passed);
            }
        }
    }

    #[test]
    fn removals_are_charged_on_success() {
        let call = Call::RemoveTree {
            path: b"d".to_vec(),
        };
        assert!(is_costly(&call));
        let removed = Ok(Answer::Removed { entries: 3 });
        assert_eq!(cost(&call, 0, &removed), 3 * REMOVED_BYTES);
        let denied = Err(Fault::new(Code::PermissionDenied, "", ""));
        assert_eq!(cost(&call, 0, &denied), 0);
    }
}
