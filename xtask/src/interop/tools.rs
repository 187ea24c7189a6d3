//! The kinds of servers, and the tools that they share.

use std::path::PathBuf;

use crate::grid::Grid;

/// A kind of server, which is a table of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Globus,
    Vsftpd,
    Xdfs,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Globus, Self::Xdfs, Self::Vsftpd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Globus => "globus-gridftp-server",
            Self::Vsftpd => "vsftpd",
            Self::Xdfs => "xdfs serve --gridftp",
        }
    }
}

/// What servers share: the program under test, and a certificate for those that make none.
pub(super) struct Tools {
    pub(super) xdfs: PathBuf,
    /// A folder of `xdfs serve` with its certificate and key.
    pub(super) certificate: PathBuf,
    pub(super) grid: Grid,
}
