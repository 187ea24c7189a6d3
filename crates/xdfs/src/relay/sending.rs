//! The upload of a parcel to its target, or to the next relay.

use std::sync::atomic::Ordering;
use std::time::Duration;

use xdfs_engine::command::TransferKind;
use xdfs_engine::{TransferParameters, UploadSpec};
use xdfs_proto::digest::DigestValue;
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_spool::Parcel;

use super::attempt::{Attempt, Failed};
use super::parcels::Relay;
use crate::client::Client;
use crate::transfer::TransferOptions;

/// Interval of looks at whether the parcel is still wanted.
const TICK: Duration = Duration::from_millis(100);

/// A parcel that is sent in a session.
pub(super) struct Sending<'a> {
    pub(super) relay: &'a Relay,
    pub(super) parcel: &'a Parcel,
    pub(super) attempt: &'a Attempt,
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

    /// Uploads the file to this path, and returns its digest.
    pub(super) fn upload(&self, path: &[u8]) -> Result<DigestValue, Failed> {
        let digest = self.parcel.digest;
        let options = TransferOptions {
            parameters: TransferParameters {
                digest: (digest != DigestValue::None).then(|| digest.kind()),
                overwrite: true,
                resume: Resume::Trust,
                rate_bytes_per_s_max: None,
                dry_run: false,
            },
            ..TransferOptions::default()
        };
        let id = self.parcel.order.id.to_string();
        let kind = TransferKind::Upload(UploadSpec {
            source: self.relay.spool.open_source(self.parcel.clone()),
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
            if let Some(progress) = transfer.progress(TICK) {
                let bytes = progress.bytes;
                self.attempt.delivered.store(bytes, Ordering::Relaxed);
            }
        }
        let outcome = transfer.outcome();
        Ok(outcome.map_err(|fault| self.failed(fault))?.digest)
    }
}
