//! The reasons for which a comparison refuses entries.

use xdfs_proto::{Code, Fault};

use super::OPERATION;

/// A directory is in the place of something else, or the other way round.
pub(super) fn clash(is_directory: bool) -> Fault {
    let (code, cause) = if is_directory {
        (Code::IsDirectory, "there is a directory in its place")
    } else {
        (
            Code::NotDirectory,
            "it is a directory, but not at the target",
        )
    };
    Fault::new(code, OPERATION, cause).hint("use --delete to replace it")
}

/// Something has to stay in the place of an entry.
pub(super) fn in_the_way() -> Fault {
    let cause = "the entry in its way has contents that have to stay";
    Fault::new(Code::NotEmpty, OPERATION, cause)
}

/// An entry is of a kind that is never moved.
pub(super) fn not_moved() -> Fault {
    let cause = "it is neither a file, a directory, a link nor a named pipe";
    Fault::new(Code::Unsupported, OPERATION, cause)
}
