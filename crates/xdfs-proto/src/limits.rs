//! Every bound that a peer meets: those of the wire as constants, and what a side may choose in
//! one value that is given at construction.

use std::time::Duration;

/// Smallest block size of a file, in bytes: one chunk of BLAKE3.
pub const BLOCK_SIZE_MIN: u32 = 1 << 10;
/// Largest block size of a file, in bytes.
pub const BLOCK_SIZE_MAX: u32 = 16 << 20;
/// Where a block has to begin at least to go in the clear, in bytes: so nothing of a file that
/// isn't longer ever does, whether its length is known beforehand or not.
pub const CLEAR_OFFSET_MIN: u64 = 512 << 10;
/// Longest region of zeros that one HOLE may name, in bytes: BLAKE3 has to hash it.
pub const HOLE_BYTES_MAX: u64 = 64 << 20;
/// Longest name of a user, in bytes.
pub(crate) const USER_BYTES_MAX: usize = 255;
/// Longest step of a proof, in bytes: a certificate chain isn't part of it, a token is.
pub(crate) const PROOF_BYTES_MAX: usize = 16 << 10;
/// Largest permission bits.
pub(crate) const MODE_MAX: u32 = 0o7777;

/// What one side allows. A breach is a fault that names the limit.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest body of a frame that is neither a BLOCK nor an ACCEPT, in bytes.
    pub control_frame_bytes_max: u32,
    /// Largest body of an ACCEPT, in bytes: it bounds the durable ranges that one tells.
    pub accept_bytes_max: u32,
    /// Largest payload of a BLOCK, in bytes.
    pub block_bytes_max: u32,
    /// Most channels that a session may have at once.
    pub channels_max: u32,
    /// Most files of a session that may be open at once.
    pub open_files_max: usize,
    /// Longest path or name, in bytes.
    pub path_bytes_max: usize,
    /// Most durable ranges that an ACCEPT may list.
    pub resume_ranges_max: usize,
    /// Files that ended last of which a machine keeps the final answer, for a peer that asks again.
    pub ended_files_kept: usize,
    /// How far behind the highest file number of a session a number may be that wasn't used yet.
    pub file_numbers_kept: u32,
    /// Most separate ranges that a receiver keeps of one file before it refuses further blocks.
    pub fragments_max: usize,
    /// Most bytes of payload in flight (sent and not acknowledged) of a session on a short path.
    pub in_flight_bytes_max: u64,
    /// Bytes of parts of listings, of all path calls of a session, that an answering side keeps
    /// until they are taken. Beside it each listing may have two parts.
    pub kept_part_bytes_max: usize,
    /// Bytes read from files, or sums of their blocks, that an answering side keeps of all calls of
    /// a session until they are taken. One call may always be answered.
    pub kept_data_bytes_max: usize,
    /// Bytes of names and attributes, as they are kept in memory, that a call client takes of one
    /// directory, in all parts and calls of its listing. A peer could list made-up names for ever,
    /// and who has to sort or to compare names keeps them all: 4 GiB are room for ten million of
    /// the longest names that file systems have, and for thirty million usual ones.
    pub listed_bytes_max: u64,
    /// Time from the connection to a finished opening exchange, a handshake of TLS and a proof
    /// included.
    pub opening_timeout: Duration,
    /// Longest silence of a peer from whom something is awaited.
    pub idle_timeout: Duration,
    /// Longest time that a channel with unacknowledged blocks may go without an acknowledgement, or
    /// one with a frame that is incomplete without a byte, while other channels of the session go
    /// on.
    pub stall_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            control_frame_bytes_max: 64 << 10,
            accept_bytes_max: 256 << 10,
            block_bytes_max: 16 << 20,
            channels_max: 4096,
            open_files_max: 16,
            path_bytes_max: 4096,
            resume_ranges_max: 1 << 14,
            ended_files_kept: 64,
            file_numbers_kept: 1024,
            fragments_max: 1 << 16,
            in_flight_bytes_max: 4 << 20,
            kept_part_bytes_max: 1 << 20,
            kept_data_bytes_max: 4 << 20,
            listed_bytes_max: 4 << 30,
            opening_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(10),
        }
    }
}
