//! The choice of files that are skipped.

use serde::{Deserialize, Serialize};

/// Which files are skipped because they exist at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Skip {
    /// None.
    Never,
    /// Those with the size, modification time, permissions and content of the source, and only
    /// where they can't be replaced: sending again is as cheap.
    Identical,
    /// Those with the size and modification time of the source.
    #[default]
    SizeAndTime,
    /// Those with the size and content of the source, by a digest that each side computes.
    Content,
    /// Those that were not modified before the source.
    NotOlder,
    /// All.
    All,
}
