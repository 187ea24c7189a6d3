//! What calls cost of the bytes a second that a user may have: those that the server reads, writes
//! or moves because of them.

use xdfs_proto::file::{FileAnswer, FileCall};
use xdfs_proto::path::{Answer, Call};

/// What a name costs that is removed together with a tree, in bytes: about what file systems write
/// for it.
const REMOVED_BYTES: u64 = 4096;

/// Whether a call costs something, so that it isn't begun while its user has to wait.
pub(crate) fn is_costly(call: &Call) -> bool {
    match call {
        Call::Checksum { .. } | Call::Copy { .. } | Call::RemoveTree { .. } => true,
        Call::File(call) => matches!(
            call,
            FileCall::Read { .. } | FileCall::Write { .. } | FileCall::Append { .. }
        ),
        _ => false,
    }
}

/// What a call has cost that ended so, in bytes.
pub(crate) fn cost(call: &Call, answer: &Answer) -> u64 {
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
