//! All limits on a peer: those of the wire format as constants, and those chosen by a side in one
//! value passed at construction.

use std::time::Duration;

/// Smallest block size of a file, in bytes: one chunk of BLAKE3.
pub const BLOCK_SIZE_MIN: u32 = 1 << 10;
/// Largest block size of a file, in bytes.
pub const BLOCK_SIZE_MAX: u32 = 16 << 20;
/// Minimum offset of a block that may be sent unprotected, in bytes: so files that aren't longer
/// are always protected, whether their length is known beforehand or not.
pub const CLEAR_OFFSET_MIN: u64 = 512 << 10;
/// Maximum region of zeros in one HOLE, in bytes: BLAKE3 has to hash it.
pub const HOLE_BYTES_MAX: u64 = 64 << 20;
/// Maximum length of a user's name, in bytes.
pub(crate) const USER_BYTES_MAX: usize = 255;
/// Maximum size of a proof step, in bytes: it may contain a token, but no certificate chain.
pub(crate) const PROOF_BYTES_MAX: usize = 16 << 10;
/// Maximum length of the target of a tunnel, and of an address there, in bytes: a host name has at
/// most 253 (RFC 1035, section 2.3.4), and the path of a Unix socket about 100.
pub const TARGET_BYTES_MAX: usize = 512;
/// Maximum permission bits.
pub(crate) const MODE_MAX: u32 = 0o7777;

/// The limits of one side. A violation is a fault that names the limit.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum body of a frame other than BLOCK or ACCEPT, in bytes.
    pub control_frame_bytes_max: u32,
    /// Maximum body of an ACCEPT, in bytes: it bounds the durable ranges listed.
    pub accept_bytes_max: u32,
    /// Maximum payload of a BLOCK, in bytes.
    pub block_bytes_max: u32,
    /// Maximum number of channels per session at once.
    pub channels_max: u32,
    /// Maximum number of open files per session.
    pub open_files_max: usize,
    /// Maximum length of a path or name, in bytes.
    pub path_bytes_max: usize,
    /// Maximum number of durable ranges in an ACCEPT.
    pub resume_ranges_max: usize,
    /// Number of recently ended files whose final answers a machine keeps, for a peer that asks
    /// again.
    pub ended_files_kept: usize,
    /// Maximum distance of an unused file number below the highest of the session.
    pub file_numbers_kept: u32,
    /// Maximum number of separate ranges per file at a receiver, before it refuses further blocks.
    pub fragments_max: usize,
    /// Maximum payload in flight (sent and not acknowledged) of a session on a short path, in
    /// bytes.
    pub in_flight_bytes_max: u64,
    /// Maximum bytes of listing parts, over all calls of a session, that an answering side keeps
    /// until they are taken. In addition each listing may have two parts.
    pub kept_part_bytes_max: usize,
    /// Maximum bytes read from files, or of block signatures, over all calls of a session, that an
    /// answering side keeps until they are taken. A single call may always be answered.
    pub kept_data_bytes_max: usize,
    /// Maximum bytes of names and attributes, as kept in memory, that a call client accepts for one
    /// directory, over all parts and calls of its listing. A peer could list made-up names forever,
    /// and sorting or comparing names requires keeping them all: 4 GiB suffice for ten million
    /// names of maximum length, and for thirty million typical ones.
    pub listed_bytes_max: u64,
    /// Maximum time from the connection to the end of the opening exchange, including a TLS
    /// handshake and a proof.
    pub opening_timeout: Duration,
    /// Maximum silence of a peer while an answer is awaited.
    pub idle_timeout: Duration,
    /// Maximum time for which a channel with unacknowledged blocks may get no acknowledgement, or
    /// one with an incomplete frame no byte, while other channels of the session make progress.
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
