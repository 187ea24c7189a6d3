//! One file from several servers at once: its replicas.
//!
//! A set of replicas is a place like a server of another protocol, so that skips, journals, retries
//! and reports of a copy from it are those of any download. Behind it one thread has a session with
//! each of some sources. It takes ranges of the file from all of them, each as fast as it can, and
//! passes none on before its digest was compared.
//!
//! Each source computes the BLAKE3 subtrees of the file's blocks, and all sources
//! have to agree on a block before it is passed on. Those that don't are dropped: if a digest of
//! the file is known beforehand, all that have another one, then the fewer, and of equally many
//! those without the source that is named first. So what was passed on up to any time is the
//! beginning of the file of each source that is left, and the whole is the file of one of them,
//! never a mixture. Bytes with another digest than the agreed one are not passed on either, and
//! their source is dropped.
//!
//! Members of a group have the file on one storage, so that comparing its content would read the
//! same bytes once for each. They are believed by its [`version`] instead: a range is passed on
//! after its source has reported, since it came, the version that is known beforehand. [`group`]
//! makes such sets.
//!
//! Members of a group also write one file together. [`striped`] is the store in front of a group,
//! for any of its files and both ways: a copy is one into or from a place in this process, as one
//! of a set of sources is. The thread of [`spread`] gives parts of a file to all members, and has
//! that member which opened the file take in what they have written.
//!
//! [`set`] has what callers use, [`window`] which ranges are taken from where, [`agreement`] the
//! comparison; both without input and output. [`fetch`] is the thread, [`place`] the store in front
//! of it, and [`resumed`] compares what an earlier attempt has left; [`open_files`] has what both
//! need of a file.

mod agreement;
mod fetch;
mod group;
mod join;
mod open_files;
mod pace;
mod place;
mod resumed;
mod scheme;
mod set;
mod shared;
mod spread;
mod striped;
#[cfg(test)]
mod tests;
mod version;
mod window;

pub use self::scheme::Replicas;
pub use self::set::{ReplicaLog, ReplicaSet, ReplicaShare};
pub use self::striped::STRIPED_BYTES_MIN;
pub use self::version::FileVersion;
