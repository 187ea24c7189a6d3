//! One attempt to deliver a parcel.
//!
//! The file goes to a hidden name beside its target, which has the parcel's identifier in it. That
//! it is there as a whole is entered in the spool before it gets its name by a rename, which
//! happens once: an attempt after a crash that finds no hidden file knows that it was renamed. So
//! the target is replaced once, whatever comes between, and also if somebody has replaced or
//! removed it since.

use std::sync::atomic::Ordering;
use std::time::Duration;

use xdfs_engine::command::TransferKind;
use xdfs_engine::{TransferParameters, UploadSpec};
use xdfs_proto::digest::DigestValue;
use xdfs_proto::frame::Resume;
use xdfs_proto::path::{Answer, Call, FileKind};
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_spool::{Parcel, Placed};

use super::attempt::{Attempt, Failed};
use super::parcels::{Relay, now_s};
use super::target;
use crate::client::Client;
use crate::paths::{join, last_part};
use crate::transfer::TransferOptions;

/// Interval of looks at whether the parcel is still wanted.
const TICK: Duration = Duration::from_millis(100);
/// Beginning of hidden names.
const HIDDEN: &[u8] = b".xdfs-parcel-";

/// Delivers a parcel.
///
/// # Errors
/// It isn't delivered, or that couldn't be entered in the spool.
pub(super) fn deliver(relay: &Relay, parcel: &Parcel, attempt: &Attempt) -> Result<(), Failed> {
    let order = &parcel.order;
    let place = target::parse(&order.target).map_err(Failed::Never)?;
    let access = relay.current.access();
    let client = target::connect(&access, &order.user, &place)?;
    let delivery = Delivery {
        relay,
        parcel,
        attempt,
        client: &client,
    };
    let (placed, is_earlier) = match &parcel.placed {
        Some(placed) => (placed.clone(), true),
        None => (delivery.place(&place.path)?, false),
    };
    delivery.rename(&placed, is_earlier)
}

struct Delivery<'a> {
    relay: &'a Relay,
    parcel: &'a Parcel,
    attempt: &'a Attempt,
    client: &'a Client,
}

impl Delivery<'_> {
    fn check(&self) -> Result<(), Failed> {
        self.attempt.check().map_err(|_| Failed::Ended)
    }

    /// Whether a failure is for good.
    fn failed(&self, fault: Fault) -> Failed {
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
        match is_of_moment {
            true => Failed::Later(fault),
            false => Failed::Never(fault),
        }
    }

    /// Uploads the file to its hidden name, and enters that it is there.
    fn place(&self, path: &[u8]) -> Result<Placed, Failed> {
        let order = &self.parcel.order;
        let target = self.target(path)?;
        let name = last_part(&target);
        let directory = &target[..target.len() - name.len()];
        let id = order.id.to_string();
        let hidden = [directory, HIDDEN, id.as_bytes()].concat();
        self.upload(&hidden)?;
        self.check()?;
        let placed = Placed { hidden, target };
        let entered = placed.clone();
        let altered = self
            .relay
            .spool
            .alter(self.parcel.number, now_s(), |parcel| {
                parcel.placed = Some(entered);
                Ok(())
            });
        altered.map_err(|fault| self.failed(fault))?;
        Ok(placed)
    }

    /// The name that the file is to get.
    fn target(&self, path: &[u8]) -> Result<Vec<u8>, Failed> {
        let order = &self.parcel.order;
        let stat = Call::Stat {
            path: path.to_vec(),
            follow: true,
        };
        let is_directory = match self.client.call(stat) {
            Ok(Answer::Attributes(found)) => found.kind == FileKind::Directory,
            Ok(_) => false,
            Err(fault) if fault.code == Code::NotFound => path.ends_with(b"/"),
            // One that can't be looked at is as one that isn't there: to write it decides.
            Err(fault) if fault.code == Code::PermissionDenied => path.ends_with(b"/"),
            Err(fault) => return Err(self.failed(fault)),
        };
        Ok(match is_directory {
            true => join(path, &order.name),
            false => path.to_vec(),
        })
    }

    fn upload(&self, hidden: &[u8]) -> Result<(), Failed> {
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
            target: hidden.to_vec(),
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
        let outcome = outcome.map_err(|fault| self.failed(fault))?;
        // The relay may have read something else than it took: then it gets no name.
        if digest != DigestValue::None && outcome.digest != digest {
            self.remove(hidden);
            let cause = "the file has another digest than its source had";
            let fault = Fault::new(Code::IntegrityMismatch, "deliver", cause);
            return Err(Failed::Never(fault));
        }
        Ok(())
    }

    fn remove(&self, hidden: &[u8]) {
        // It may be there no more, and if it stays it is hidden.
        let _ = self.client.call(Call::RemoveFile {
            path: hidden.to_vec(),
        });
    }

    /// Gives the file its name, and enters that it was delivered. `is_earlier`: an earlier attempt
    /// may have done so already.
    fn rename(&self, placed: &Placed, is_earlier: bool) -> Result<(), Failed> {
        if self.attempt.is_cancelled() {
            self.remove(&placed.hidden);
            return Err(Failed::Ended);
        }
        let renamed = self.client.call(Call::Rename {
            from: placed.hidden.clone(),
            to: placed.target.clone(),
            overwrite: self.parcel.order.overwrite,
        });
        match renamed {
            Ok(_) => {}
            Err(fault) if is_earlier && fault.code == Code::NotFound => {}
            Err(fault) => {
                let failed = self.failed(fault);
                if let Failed::Never(_) = &failed {
                    // In this order: an attempt that finds the file gone takes it for delivered.
                    self.forget_place()?;
                    self.remove(&placed.hidden);
                }
                return Err(failed);
            }
        }
        let attempts = self.attempts();
        let delivered = self
            .relay
            .spool
            .alter(self.parcel.number, now_s(), move |parcel| {
                if parcel.state == ParcelState::Held {
                    parcel.state = ParcelState::Delivered;
                    parcel.fault = None;
                    parcel.attempts = attempts;
                }
                Ok(())
            });
        delivered.map(drop).map_err(|fault| self.failed(fault))
    }

    fn attempts(&self) -> u32 {
        let tried = super::attempt::lock(&self.relay.tried);
        tried
            .get(&self.parcel.number)
            .map_or(1, |tried| tried.attempts)
    }

    /// The next attempt begins with the upload.
    fn forget_place(&self) -> Result<(), Failed> {
        let altered = self
            .relay
            .spool
            .alter(self.parcel.number, now_s(), |parcel| {
                parcel.placed = None;
                Ok(())
            });
        altered.map(drop).map_err(|fault| self.failed(fault))
    }
}
