//! One attempt to deliver a parcel.
//!
//! The file goes to a hidden name beside its target, which no other parcel has. That it is there as
//! a whole is entered in the spool before it gets its name by a rename, which happens once: an
//! attempt after a crash that finds no hidden file, in the directory where it was, knows that it
//! was renamed. So the target is replaced once, whatever comes between, and also if somebody has
//! replaced or removed it since.
//!
//! A large file goes to its hidden name while it arrives. The spool knows that name before, so that
//! it can be removed if the rest never comes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use xdfs_engine::TransferParameters;
use xdfs_proto::digest::DigestValue;
use xdfs_proto::path::{Answer, Call, FileKind};
use xdfs_proto::relay::ParcelState;
use xdfs_proto::{Code, Fault};
use xdfs_spool::{Parcel, Placed};

use super::attempt::{Attempt, Failed};
use super::parcels::Relay;
use super::sending::Sending;
use super::steps::{self, Renamed};
use super::target;
use super::tree_place::TreeFile;
use crate::between::ServerFile;
use crate::client::{Client, ClientOptions};
use crate::events::TreeEvent;
use crate::paths::{join, last_part};
use crate::retry::RetryPolicy;
use crate::scheme::PlaceSettings;
use crate::tree::{ExactRoot, TreeOptions};

/// Beginning of hidden names.
const HIDDEN: &[u8] = b".xdfs-parcel-";

/// Delivers a parcel.
///
/// # Errors
/// It isn't delivered, or that couldn't be entered in the spool.
pub(super) fn deliver(
    relay: &Relay,
    parcel: &Parcel,
    attempt: &Arc<Attempt>,
) -> Result<(), Failed> {
    let order = &parcel.order;
    let place = target::parse(&order.target).map_err(Failed::Never)?;
    let access = relay.current.access();
    target::with(&relay.links, &access, (&order.user, &place), |client| {
        let sending = Sending {
            relay,
            parcel,
            attempt,
            client,
        };
        let delivery = Delivery(&sending);
        let (placed, is_earlier) = match &parcel.placed {
            Some(placed) => (placed.clone(), true),
            None => (delivery.place(&place.path)?, false),
        };
        delivery.rename(&placed, is_earlier)
    })
}

/// Removes what an attempt has left at the target of a parcel that isn't wanted any more, unless it
/// has its name there already. Returns whether it does.
///
/// # Errors
/// An earlier attempt is still at it, or it isn't known whether it has its name.
pub(super) fn withdraw(
    relay: &Relay,
    parcel: &Parcel,
    attempt: &Arc<Attempt>,
) -> Result<bool, Failed> {
    if parcel.placed.is_none() && parcel.begun.is_none() {
        return Ok(false);
    }
    let place = target::parse(&parcel.order.target).map_err(Failed::Never)?;
    let access = relay.current.access();
    let user = &parcel.order.user;
    let withdrawn = target::with(&relay.links, &access, (user, &place), |client| {
        let sending = Sending {
            relay,
            parcel,
            attempt,
            client,
        };
        Delivery(&sending).withdraw()
    });
    match withdrawn {
        Err(failed) if parcel.placed.is_some() => Err(failed),
        Err(Failed::Later(fault)) if fault.code == Code::Busy => Err(Failed::Later(fault)),
        // It stays, hidden, if the target can't be reached.
        Err(_) => Ok(false),
        Ok(is_delivered) => Ok(is_delivered),
    }
}

struct Delivery<'a>(&'a Sending<'a>);

impl Delivery<'_> {
    /// Uploads the file to its hidden name, and enters that it is there.
    fn place(&self, path: &[u8]) -> Result<Placed, Failed> {
        let target = self.target(path)?;
        let name = last_part(&target);
        let directory = &target[..target.len() - name.len()];
        let mark = format!("{:032x}", self.0.relay.spool.mark(self.0.parcel));
        let hidden = [directory, HIDDEN, mark.as_bytes()].concat();
        if self.0.parcel.state == ParcelState::Arriving {
            self.enter_begun(&hidden)?;
        }
        match self.0.parcel.order.tree {
            true => self.copy_tree(&hidden)?,
            false => self.upload(&hidden)?,
        }
        if self.0.attempt.is_cancelled() {
            self.remove(&hidden);
        }
        self.0.check()?;
        let directory = self.directory(&target).ok();
        let placed = Placed {
            hidden,
            target,
            directory,
        };
        let entered = placed.clone();
        self.alter(move |parcel| steps::placed(parcel, entered))?;
        Ok(placed)
    }

    /// Enters that there may be something under a hidden name from now on.
    fn enter_begun(&self, hidden: &[u8]) -> Result<(), Failed> {
        if self.0.parcel.begun.as_deref() == Some(hidden) {
            return Ok(());
        }
        let begun = hidden.to_vec();
        self.alter(|parcel| {
            parcel.begun = Some(begun);
            Ok(())
        })
    }

    /// Changes the parcel in the spool.
    fn alter(
        &self,
        alter: impl FnOnce(&mut Parcel) -> Result<(), Fault> + Send + 'static,
    ) -> Result<(), Failed> {
        let Sending { relay, parcel, .. } = self.0;
        let altered = relay.spool.alter(parcel.number, relay.now_s(), alter);
        altered.map(drop).map_err(|fault| self.0.failed(fault))
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
        match self.0.client.call(stat)? {
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
            Err(fault) if fault.code != Code::NotFound => Err(self.0.failed(fault)),
            _ => {
                let cause = "its directory is another one than before";
                let fault = Fault::new(Code::NotFound, "deliver", cause).path(&placed.target);
                let fault = fault.hint("a disk may not be mounted there");
                Err(Failed::Later(self.0.client.fault_there(fault)))
            }
        }
    }

    /// The name that the file is to get.
    fn target(&self, path: &[u8]) -> Result<Vec<u8>, Failed> {
        let order = &self.0.parcel.order;
        let stat = Call::Stat {
            path: path.to_vec(),
            follow: true,
        };
        let is_directory = match self.0.client.call(stat) {
            Ok(Answer::Attributes(found)) => found.kind == FileKind::Directory,
            Ok(_) => false,
            Err(fault) if fault.code == Code::NotFound => path.ends_with(b"/"),
            // One that can't be looked at is as one that isn't there: to write it decides.
            Err(fault) if fault.code == Code::PermissionDenied => path.ends_with(b"/"),
            Err(fault) => return Err(self.0.failed(fault)),
        };
        Ok(match is_directory {
            true => join(path, &order.name),
            false => path.to_vec(),
        })
    }

    fn upload(&self, hidden: &[u8]) -> Result<(), Failed> {
        let uploaded = self.0.upload(hidden, || Ok(()))?;
        let digest = self.0.now()?.digest;
        // The relay may have read something else than it took: then it gets no name.
        if digest != DigestValue::None && uploaded != digest {
            self.remove(hidden);
            let cause = "the file has another digest than its source had";
            let fault = Fault::new(Code::IntegrityMismatch, "deliver", cause);
            return Err(Failed::Never(fault));
        }
        Ok(())
    }

    /// Copies a tree to the hidden name. What an earlier attempt has left there is completed.
    fn copy_tree(&self, hidden: &[u8]) -> Result<(), Failed> {
        let Sending {
            relay,
            parcel,
            attempt,
            client,
        } = self.0;
        let (spool, own) = (relay.spool.clone(), Parcel::clone(parcel));
        let open = Box::new(move || spool.open_source(own.clone()));
        let tree = TreeFile::open(open, parcel.order.bytes, relay.spool.mark(parcel));
        let tree = Arc::new(tree.map_err(|fault| self.0.failed(fault))?);
        let header = tree.header;
        let (place, setting) = tree.place();
        let options = ClientOptions {
            settings: PlaceSettings::default().with(setting),
            ..ClientOptions::default()
        };
        let there = Client::connect(&place, options).map_err(|fault| self.0.failed(fault))?;
        let there = Arc::new(there);
        let source = ServerFile::new(place, move |_| Ok(Arc::clone(&there)));
        let options = TreeOptions {
            parameters: TransferParameters {
                overwrite: true,
                ..TransferParameters::default()
            },
            owner: header.keep.owner,
            xattrs: header.keep.xattrs,
            read_times: header.keep.read_times,
            hard_links: header.hard_links,
            // The relay has pauses of its own.
            retry: RetryPolicy::none(),
            ..TreeOptions::default()
        };
        let root = ExactRoot {
            keeps_root: false,
            again: true,
        };
        let mut first = None;
        let mut observer = |event: TreeEvent<'_>| {
            match event {
                TreeEvent::Failed { fault, .. } => drop(first.get_or_insert_with(|| fault.clone())),
                TreeEvent::Progress(result) => {
                    attempt.delivered.store(result.bytes, Ordering::Relaxed);
                }
                _ => {}
            }
            match attempt.check() {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let copied = client.copy_tree_exactly(&source, hidden, &options, root, &mut observer);
        let result = copied.map_err(|fault| self.0.failed(fault))?;
        self.0.check()?;
        match first {
            Some(fault) => Err(self.0.failed(fault)),
            None if result.failed > 0 => {
                let cause = "a part of the tree could not be copied";
                Err(self.0.failed(Fault::new(Code::Io, "deliver", cause)))
            }
            None => Ok(()),
        }
    }

    fn remove(&self, hidden: &[u8]) {
        let path = hidden.to_vec();
        // It may be there no more, and if it stays it is hidden.
        let _ = self.0.client.call(match self.0.parcel.order.tree {
            true => Call::RemoveTree { path },
            false => Call::RemoveFile { path },
        });
    }

    /// Removes what is there of a file of which the rest never came.
    fn remove_partial(&self, hidden: &[u8]) -> Result<(), Failed> {
        let removed = self.0.client.call(Call::RemovePartial {
            path: hidden.to_vec(),
            unchanged_since_ns: None,
        });
        match removed {
            // The session of an earlier attempt hasn't ended there.
            Err(fault) if fault.code == Code::Busy => Err(self.0.failed(fault)),
            // There is none, or it stays, hidden.
            _ => Ok(()),
        }
    }

    /// Gives the file its name, and enters that it was delivered. `is_earlier`: an earlier attempt
    /// may have done so already.
    fn rename(&self, placed: &Placed, is_earlier: bool) -> Result<(), Failed> {
        // Whether an earlier attempt has done it is found out where it is withdrawn.
        self.0.check()?;
        let renamed = self.0.client.call(Call::Rename {
            from: placed.hidden.clone(),
            to: placed.target.clone(),
            overwrite: self.0.parcel.order.overwrite,
        });
        let refused = renamed.err();
        match steps::renamed(refused.as_ref().map(|fault| fault.code), is_earlier) {
            Renamed::Done => {}
            Renamed::Earlier => self.check_directory(placed)?,
            Renamed::Failed => {
                let none = || Fault::new(Code::Internal, "deliver", "it failed");
                let failed = self.0.failed(refused.unwrap_or_else(none));
                if let Failed::Never(_) = &failed {
                    // In this order: an attempt that finds the file gone takes it for delivered.
                    self.alter(|parcel| {
                        parcel.placed = None;
                        Ok(())
                    })?;
                    self.remove(&placed.hidden);
                }
                return Err(failed);
            }
        }
        self.enter_delivered()
    }

    fn enter_delivered(&self) -> Result<(), Failed> {
        let attempts = self.attempts();
        self.alter(move |parcel| {
            steps::delivered(parcel, attempts);
            Ok(())
        })?;
        self.0.relay.tally.delivered(self.0.parcel);
        Ok(())
    }

    /// Removes what is there under the hidden name. Returns whether it has its name instead.
    fn withdraw(&self) -> Result<bool, Failed> {
        let Parcel { placed, begun, .. } = self.0.parcel;
        let hidden = match (placed, begun) {
            (Some(placed), _) => {
                let stat = Call::Stat {
                    path: placed.hidden.clone(),
                    follow: false,
                };
                match self.0.client.call(stat) {
                    Ok(_) => {}
                    Err(fault) if fault.code == Code::NotFound => {
                        self.check_directory(placed)?;
                        self.enter_delivered()?;
                        return Ok(true);
                    }
                    Err(fault) => return Err(self.0.failed(fault)),
                }
                self.alter(|parcel| {
                    steps::unplaced(parcel);
                    Ok(())
                })?;
                &placed.hidden
            }
            (None, Some(begun)) => begun,
            (None, None) => return Ok(false),
        };
        self.remove(hidden);
        self.remove_partial(hidden)?;
        Ok(false)
    }

    fn attempts(&self) -> u32 {
        let tried = super::attempt::lock(&self.0.relay.tried);
        tried
            .get(&self.0.parcel.number)
            .map_or(1, |tried| tried.attempts)
    }
}
