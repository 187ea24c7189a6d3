//! The upload of a parcel to its target, or to the next relay.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use xdfs_engine::command::TransferKind;
use xdfs_engine::{TransferParameters, UploadSpec};
use xdfs_proto::digest::{DigestKind, DigestValue};
use xdfs_proto::frame::Resume;
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_spool::Parcel;

use super::attempt::{Attempt, Failed, UploadAhead};
use super::parcels::Relay;
use crate::client::Client;
use crate::transfer::TransferOptions;

/// Interval of looks at whether the parcel is still wanted.
const TICK: Duration = Duration::from_millis(100);
/// The same while the end of the transfer may have to wait for this side.
const TICK_AHEAD: Duration = Duration::from_millis(10);

/// A parcel that is sent in a session.
pub(super) struct Sending<'a> {
    pub(super) relay: &'a Relay,
    pub(super) parcel: &'a Parcel,
    pub(super) attempt: &'a Arc<Attempt>,
    pub(super) client: &'a Client,
}

impl Sending<'_> {
    pub(super) fn check(&self) -> Result<(), Failed> {
        self.attempt.check().map_err(|_| Failed::Ended)
    }

    /// Whether a failure is for good.
    pub(super) fn failed(&self, fault: Fault) -> Failed {
        if self.attempt.check().is_err() {
            return Failed::Ended;
        }
        let is_of_moment = fault.retry != Retry::Never
            || fault.ends_session
            || matches!(
                fault.code,
                Code::Busy
                    | Code::ConnectionLost
                    | Code::ConnectionRefused
                    | Code::DeadlineExceeded
                    | Code::IntegrityMismatch
                    | Code::Io
                    | Code::LimitExceeded
                    | Code::NoSpace
                    | Code::QuotaExceeded
                    | Code::ShuttingDown
                    | Code::Internal
                    | Code::Cancelled
            );
        match is_of_moment && !self.relay.spool.is_damaged(self.parcel) {
            true => Failed::Later(fault),
            false => Failed::Never(fault),
        }
    }

    /// The parcel as it is now: it may have been taken meanwhile.
    pub(super) fn now(&self) -> Result<Parcel, Failed> {
        let now = self.relay.spool.parcel(self.parcel.number);
        now.map_err(|fault| self.failed(fault))
    }

    /// Uploads the file to this path, also while it arrives, and returns its digest. The upload
    /// doesn't end before the file was taken here, and `before_end` was done.
    pub(super) fn upload(
        &self,
        path: &[u8],
        before_end: impl Fn() -> Result<(), Failed>,
    ) -> Result<DigestValue, Failed> {
        let (spool, parcel) = (&self.relay.spool, self.parcel.clone());
        let is_ahead = parcel.state == ParcelState::Arriving;
        let ahead = UploadAhead::new(self.attempt);
        let (source, digest) = match is_ahead {
            true => {
                let opened = spool.open_source_ahead(parcel, ahead.reader());
                opened.map_err(|fault| self.failed(fault))?
            }
            false => {
                let digest = parcel.digest.kind();
                (spool.open_source(parcel), digest)
            }
        };
        let options = TransferOptions {
            parameters: TransferParameters {
                digest: (digest != DigestKind::None).then_some(digest),
                overwrite: true,
                resume: Resume::Trust,
                rate_bytes_per_s_max: None,
                dry_run: false,
            },
            ..TransferOptions::default()
        };
        let id = self.parcel.order.id.to_string();
        let kind = TransferKind::Upload(UploadSpec {
            source,
            source_path: id.into_bytes(),
            target: path.to_vec(),
            name: Vec::new(),
            pack: false,
            relaxed: false,
            last: None,
        });
        let started = self.client.start(&options, kind);
        let mut transfer = started.map_err(|fault| self.failed(fault))?;
        while !transfer.is_finished() {
            if self.attempt.check().is_err() {
                transfer.cancel();
            }
            if is_ahead && self.attempt.wants_end() {
                match before_end() {
                    Ok(()) => self.attempt.let_end(),
                    Err(failed) => {
                        transfer.cancel();
                        return Err(failed);
                    }
                }
            }
            let tick = if is_ahead { TICK_AHEAD } else { TICK };
            if let Some(progress) = transfer.progress(tick) {
                let bytes = progress.bytes;
                self.attempt.delivered.store(bytes, Ordering::Relaxed);
            }
        }
        let outcome = transfer.outcome();
        Ok(outcome.map_err(|fault| self.failed(fault))?.digest)
    }
}
