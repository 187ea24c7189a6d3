//! One attempt to deliver a parcel.
//!
//! The file goes to a hidden name beside its target, which no other parcel has. That it is there as
//! a whole is entered in the spool before it gets its name by a rename, which happens once: an
//! attempt after a crash that finds no hidden file, in the directory where it was, knows that it
//! was renamed. So the target is replaced once, whatever comes between, and also if somebody has
//! replaced or removed it since.

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
use super::tally::Tally;
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

/// Removes what an attempt has left at the target of a parcel that isn't wanted any more. It stays,
/// hidden, if the target can't be reached.
pub(super) fn withdraw(relay: &Relay, parcel: &Parcel, attempt: &Attempt) {
    let Some(placed) = &parcel.placed else { return };
    let Ok(place) = target::parse(&parcel.order.target) else {
        return;
    };
    if let Ok(client) = target::connect(&relay.current.access(), &parcel.order.user, &place) {
        let delivery = Delivery {
            relay,
            parcel,
            attempt,
            client: &client,
        };
        delivery.remove(&placed.hidden);
    }
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
        let target = self.target(path)?;
        let name = last_part(&target);
        let directory = &target[..target.len() - name.len()];
        let mark = format!("{:032x}", self.relay.spool.mark(self.parcel));
        let hidden = [directory, HIDDEN, mark.as_bytes()].concat();
        self.upload(&hidden)?;
        self.check()?;
        let directory = self.directory(&target).ok();
        let placed = Placed {
            hidden,
            target,
            directory,
        };
        let entered = placed.clone();
        let altered = self
            .relay
            .spool
            .alter(self.parcel.number, now_s(), |parcel| {
                if parcel.state != ParcelState::Held {
                    return Err(Fault::new(Code::Cancelled, "deliver", "it was ended"));
                }
                parcel.placed = Some(entered);
                Ok(())
            });
        altered.map_err(|fault| self.failed(fault))?;
        Ok(placed)
    }

    /// The device and the inode number of the directory of a name.
    fn directory(&self, name: &[u8]) -> Result<(u64, u64), Fault> {
        let length = name.len() - last_part(name).len();
        let path = match name[..length].strip_suffix(b"/") {
            Some(path) if !path.is_empty() => path,
            _ => b"/",
        };
        let stat = Call::Stat {
            path: path.to_vec(),
            follow: true,
        };
        match self.client.call(stat)? {
            Answer::Attributes(found) => Ok((found.device, found.inode)),
            // The engine lets nothing else through.
            _ => Err(Fault::new(Code::Internal, "deliver", "another answer")),
        }
    }

    /// Whether the directory in which a file was is still that one, and not a place at which a disk
    /// isn't mounted.
    fn check_directory(&self, placed: &Placed) -> Result<(), Failed> {
        let Some(known) = placed.directory else {
            return Ok(());
        };
        match self.directory(&placed.target) {
            Ok(found) if found == known => Ok(()),
            Err(fault) if fault.code != Code::NotFound => Err(self.failed(fault)),
            _ => {
                let cause = "its directory is another one than before";
                let fault = Fault::new(Code::NotFound, "deliver", cause).path(&placed.target);
                let fault = fault.hint("a disk may not be mounted there");
                Err(Failed::Later(self.client.fault_there(fault)))
            }
        }
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
            Err(fault) if is_earlier && fault.code == Code::NotFound => {
                self.check_directory(placed)?;
            }
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
        delivered.map_err(|fault| self.failed(fault))?;
        let tally = &self.relay.tally;
        Tally::count(&tally.delivered);
        Tally::add(&tally.delivered_bytes, self.parcel.order.bytes);
        Ok(())
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
