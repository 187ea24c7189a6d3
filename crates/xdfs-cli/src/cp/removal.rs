//! `xdfs cp --remove-source`: reports the removal of sources that were copied.

use std::sync::Arc;

use xdfs::operations::path::{join, last_part};
use xdfs::operations::{PathSide, Removal, RemovalEvent, SidePath};
use xdfs::{Fault, FileKind, Filter, LocalPlace, TransferRoute};

use super::origins::Origins;
use super::plan::PlannedCopy;
use crate::client::SharedClient;
use crate::interrupt::Interrupt;
use crate::report::{Label, Reporter};
use crate::session::Connector;

/// A copy that has ended, with the sources that it leaves.
pub(super) struct SourceRemoval<'a> {
    pub(super) label: &'a Label,
    pub(super) removal: Removal,
    /// Entries that are not the same at the target are failures; otherwise the copy has reported
    /// some already.
    pub(super) reports_all: bool,
    pub(super) interrupt: &'a Interrupt,
}

/// A path on the server of a session.
pub(super) fn path_at(client: &SharedClient, path: Vec<u8>) -> SidePath {
    SidePath {
        side: PathSide::Remote(Arc::clone(client.client())),
        path,
    }
}

/// A path of this machine.
pub(super) fn path_here(path: Vec<u8>) -> SidePath {
    SidePath {
        side: PathSide::Local,
        path,
    }
}

/// The removal of the source of a file that was copied; `None` if it has no path.
///
/// # Errors
/// The session can't be opened, or the target can't be looked up.
pub(super) fn of_file<'a>(
    connector: &Connector,
    job: &'a PlannedCopy,
    origins: &Origins,
    interrupt: &'a Interrupt,
) -> Result<Option<SourceRemoval<'a>>, Fault> {
    let here = match job.route.local() {
        LocalPlace::Path(here) => path_here(here.as_os_str().as_encoded_bytes().to_vec()),
        LocalPlace::OtherServer(file) => {
            let origin = origins.connect(file.place())?;
            path_at(&origin, file.place().path.clone())
        }
        _ => return Ok(None),
    };
    let client = connector.connect(&job.server)?;
    let (source, target) = match &job.route {
        TransferRoute::Upload { to, .. } => {
            let mut target = path_at(&client, to.clone());
            connector.leave(&job.server, client);
            if target.stat(true)?.kind == FileKind::Directory {
                target.path = join(to, last_part(&here.path));
            }
            (here, target)
        }
        TransferRoute::Download { from, .. } => {
            let source = path_at(&client, from.clone());
            connector.leave(&job.server, client);
            (source, here)
        }
    };
    Ok(Some(SourceRemoval {
        label: &job.label,
        removal: Removal { source, target },
        reports_all: true,
        interrupt,
    }))
}

impl SourceRemoval<'_> {
    /// Removes the files and links of the source, without those that the filter leaves out.
    /// Reports those that stay, and the failures.
    pub(super) fn run(&self, filter: &Filter, reporter: &mut Reporter) {
        let text = "comparing source and target before the source is removed";
        reporter.console().detail(text);
        let mut observer = |event: RemovalEvent<'_>| match event {
            RemovalEvent::Removed { .. } => reporter.source_removed(),
            RemovalEvent::Stays { fault, .. } if !self.reports_all => {
                reporter.console().detail(&fault.to_string());
            }
            RemovalEvent::Stays { name, fault } | RemovalEvent::Failed { name, fault } => {
                reporter.tree_failure(self.label, name, fault);
            }
            _ => {}
        };
        let is_cancelled = || self.interrupt.requested();
        self.removal.run(filter, &is_cancelled, &mut observer);
        if self.interrupt.requested() {
            // Checksums of large files may take minutes more at a server.
            for path in [&self.removal.source, &self.removal.target] {
                if let PathSide::Remote(client) = &path.side {
                    client.stop();
                }
            }
            let fault = Interrupt::fault("remove the source");
            let hint = "run the same command again for what is left";
            reporter.failure(Some(self.label), &fault.hint(hint));
        }
    }
}
