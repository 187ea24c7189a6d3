//! Operations on places: the parts of a file mover that are more than a call, for programs,
//! services and bindings.
//!
//! Each is a type with its options, and an iterator of results (or a callback that takes them).
//! They print nothing and ask no user; every failure is a [`Fault`](crate::Fault), and those of
//! single entries are results among others.
//!
//! - [`PathSide`] is where paths are: on this machine, or on a server, by the same calls. A
//!   [`SidePath`] is a path there.
//! - [`Walk`] walks a tree, with listings requested ahead.
//! - [`Find`] yields the entries of a tree that pass tests, or removes them.
//! - [`Check`] compares two trees, on any sides, by digests.
//! - [`Sums`] and [`SumTree`] compute digests of files, and [`SumCheck`] checks those of a list.
//! - [`PlannedFile`] is the route of a file, from the places that a user names.
//! - [`Removal`] removes the source of a copy, once the target is the same and durable.
//! - [`matching_paths`] are those on a server that match a pattern of names; [`expand`] finds them
//!   anywhere.
//! - [`ListedPaths`] are the paths of a tree that are copied, and [`read_pairs`] reads sources and
//!   targets from a list.
//!
//! ```
//! use xdfs::FileKind;
//! use xdfs::operations::{Find, FindOptions, FindStep, FindTests, PathSide, SidePath};
//! # fn main() -> Result<(), xdfs::Fault> {
//! # let folder = tempfile::tempdir().unwrap();
//! # std::fs::write(folder.path().join("large"), [0; 5000]).unwrap();
//! # std::fs::write(folder.path().join("small"), [0; 5]).unwrap();
//! # let path = folder.path().as_os_str().as_encoded_bytes();
//! let options = FindOptions {
//!     tests: FindTests {
//!         kind: Some(FileKind::File),
//!         size: Some("+4k".parse()?),
//!         ..FindTests::default()
//!     },
//!     ..FindOptions::default()
//! };
//! let start = SidePath::new(PathSide::Local, path);
//! for step in Find::new(&start, &options)? {
//!     match step {
//!         FindStep::Found(entry) => assert_eq!(entry.name, b"large"),
//!         FindStep::Removed(_) | FindStep::Other => {}
//!         FindStep::Failed(fault) => return Err(fault),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod calls;
mod check;
mod find;
mod listed;
mod mirrors;
mod pair_list;
pub mod path;
mod plan;
mod removal;
mod side;
mod sum;
mod sum_list;
mod unfinished;
mod walk;
mod wildcards;

pub use calls::{InFlight, SideCall, stat, unexpected_answer};
pub use check::{Check, CheckEnd, CheckOptions, CheckStep, Difference};
pub use find::{DaysTest, Find, FindOptions, FindStep, FindTests, SizeTest};
pub use listed::ListedPaths;
pub use mirrors::{MirroredFile, read_mirrors};
pub use pair_list::{PairLine, read_pairs};
pub use plan::{DownloadTarget, PlannedFile, check_names, no_directory};
pub use removal::{Removal, RemovalEvent};
pub use side::{PathSide, SideListing, SidePath};
pub use sum::{Sum, SumStep, SumTree, Sums};
pub use sum_list::{SumCheck, escaped_name};
pub use unfinished::UnfinishedListing;
pub use walk::{LISTINGS_AHEAD, List, Walk, WalkEntry, WalkOptions, WalkStep};
pub use wildcards::{
    Matched, Names, expand, listed_names, matching_paths, pattern_of_path, pattern_of_url,
    split_invitation,
};
