//! What calls cost of the bytes a second that a user may have: those that the server reads, writes
//! or moves because of them.

use xdfs_proto::file::{FileAnswer, FileCall};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{Code, Fault};

/// What a name costs that is removed together with a tree, in bytes: about what file systems write
/// for it.
const REMOVED_BYTES: u64 = 4096;

/// Whether a call costs something, so that it isn't begun while its user has to wait.
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

/// What a call has cost that ended so, in bytes. How far one came that failed isn't known: sums and
/// seeds count as if they had come to their end, all others as nothing, as do refusals.
pub(crate) fn cost(call: &Call, answer: &Result<Answer, Fault>) -> u64 {
    match (call, answer) {
        (
            Call::Signatures {
                block_bytes, count, ..
            },
            answer,
        ) => signed(u64::from(*block_bytes), u64::from(*count), answer),
        // Each piece is read, and written if it is as it has to be.
        (Call::Seed(seed), answer) if is_begun(answer) => seed.bytes(),
        (call, Ok(answer)) => cost_of_done(call, answer),
        _ => 0,
    }
}

/// Whether it may have come so far that it read something.
fn is_begun(answer: &Result<Answer, Fault>) -> bool {
    answer.as_ref().err().is_none_or(|fault| {
        !matches!(
            fault.code,
            Code::NotFound
                | Code::PermissionDenied
                | Code::IsDirectory
                | Code::NotDirectory
                | Code::PathEscape
                | Code::Unsupported
                | Code::InvalidArgument
                | Code::Busy
                | Code::QuotaExceeded
        )
    })
}

/// What the sums of so many blocks have cost.
fn signed(block: u64, count: u64, answer: &Result<Answer, Fault>) -> u64 {
    let asked = block.saturating_mul(count);
    match answer {
        Ok(Answer::Signatures(found)) => {
            let first = found.first.saturating_mul(block);
            asked.min(found.length.saturating_sub(first))
        }
        answer if is_begun(answer) => asked,
        _ => 0,
    }
}

fn cost_of_done(call: &Call, answer: &Answer) -> u64 {
    match (call, answer) {
        (Call::Checksum { .. }, Answer::Digest { length, .. }) => *length,
        (Call::Copy { .. }, Answer::Copied { bytes }) => *bytes,
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
    use xdfs_proto::delta::{Seed, SeedPiece, Signatures};
    use xdfs_proto::digest::{DigestKind, FragmentState};
    use xdfs_proto::frame::SourceTag;

    use super::*;

    fn fault(code: Code) -> Result<Answer, Fault> {
        Err(Fault::new(code, "", ""))
    }

    #[test]
    fn sums_cost_the_bytes_that_they_are_of() {
        let call = Call::Signatures {
            path: b"f".to_vec(),
            digest: DigestKind::Blake3,
            block_bytes: 4096,
            first: 2,
            count: 10,
        };
        assert!(is_costly(&call));
        let of = |length| {
            Ok(Answer::Signatures(Signatures {
                tag: SourceTag::default(),
                length,
                first: 2,
                digest: DigestKind::Blake3,
                blocks: Vec::new(),
            }))
        };
        for (length, bytes) in [(1 << 30, 40_960), (8192 + 4097, 4097), (8192, 0), (0, 0)] {
            assert_eq!(cost(&call, &of(length)), bytes, "{length}");
        }
        assert_eq!(cost(&call, &fault(Code::SourceChanged)), 40_960);
        assert_eq!(cost(&call, &fault(Code::NotFound)), 0);
    }

    #[test]
    fn a_seed_costs_the_bytes_of_its_pieces_also_if_none_is_taken() {
        let piece = |offset| SeedPiece {
            offset,
            from_offset: 7,
            length: 1024,
            state: FragmentState::Crc64Nvme(1),
        };
        let call = Call::Seed(Box::new(Seed {
            from: b"f".to_vec(),
            to: b"f".to_vec(),
            overwrite: true,
            sparse: false,
            tag: SourceTag::default(),
            length: 4096,
            digest: DigestKind::Crc64Nvme,
            block_bytes: 1024,
            pieces: vec![piece(0), piece(2048)],
        }));
        assert!(is_costly(&call));
        assert_eq!(cost(&call, &Ok(Answer::Copied { bytes: 0 })), 2048);
        assert_eq!(cost(&call, &fault(Code::Io)), 2048);
        assert_eq!(cost(&call, &fault(Code::PermissionDenied)), 0);
    }
}
