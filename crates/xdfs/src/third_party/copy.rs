//! One copy with another server, and the thread that makes it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use xdfs_engine::command::TransferKind;
use xdfs_engine::{DownloadSpec, Outcome, TransferParameters, UploadSpec};
use xdfs_proto::Fault;
use xdfs_proto::third_party::CopyOrder;
use xdfs_store::Store;

use super::state::Copy;
use super::watch::{EndGuard, Watch};
use super::way::Way;
use crate::transfer::TransferOptions;

/// Interval of looks at whether the copy is still wanted.
const TICK: Duration = Duration::from_millis(100);

/// The work of the thread.
pub(super) struct Run {
    pub(super) copy: Arc<Copy>,
    pub(super) order: CopyOrder,
    pub(super) store: Arc<dyn Store>,
    pub(super) way: Way,
}

impl Run {
    /// Starts the thread.
    pub(super) fn spawn(self) -> Result<(), Fault> {
        let thread = thread::Builder::new().name("xdfs-copy".into());
        let started = thread.spawn(move || {
            let _end = EndGuard(Arc::clone(&self.copy));
            match self.run() {
                Ok(outcome) => self.copy.done(outcome),
                Err(fault) => self.copy.fail(self.copy.check().err().unwrap_or(fault)),
            }
        });
        started
            .map(drop)
            .map_err(|error| Fault::from_io("start the thread of a copy", "", &error))
    }

    fn run(&self) -> Result<Outcome, Fault> {
        self.way.try_each(&self.copy, |address| self.by(address))
    }

    fn by(&self, address: SocketAddr) -> Result<Outcome, Fault> {
        let order = &self.order;
        let client = Arc::new(self.way.connect(address)?);
        let _watch = Watch::over(&self.copy, &client)?;
        let rate = order.rate_bytes_per_s_max;
        let options = TransferOptions {
            parameters: TransferParameters {
                digest: Some(order.digest),
                overwrite: order.overwrite,
                resume: order.resume,
                rate_bytes_per_s_max: (rate > 0).then_some(rate),
                dry_run: false,
            },
            ..TransferOptions::default()
        };
        let kind = match order.sends {
            true => TransferKind::Upload(UploadSpec {
                source: self.store.open_source(&order.here)?,
                source_path: order.here.clone(),
                target: order.there.clone(),
                name: order.name.clone(),
                pack: false,
                relaxed: false,
                last: None,
            }),
            false => TransferKind::Download(DownloadSpec {
                source: order.there.clone(),
                store: Arc::clone(&self.store),
                target: order.here.clone(),
                name: order.name.clone(),
                pack_request: None,
            }),
        };
        let mut transfer = client.start(&options, kind)?;
        while !transfer.is_finished() {
            if self.copy.check().is_err() {
                transfer.cancel();
            }
            let progress = transfer.progress(TICK);
            if client.user().is_some() {
                self.copy.moving(|status| {
                    if let Some(progress) = progress {
                        status.bytes = progress.bytes;
                        status.bytes_total = progress.bytes_total;
                        status.resumed_bytes = progress.resumed_bytes;
                        status.channels = u16::try_from(progress.channels).unwrap_or(u16::MAX);
                    }
                });
            }
        }
        if client.user().is_some() {
            self.copy.moving(|_| {});
        }
        transfer.outcome()
    }
}
