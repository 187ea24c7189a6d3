//! Parcels that go by another relay: how it gets them, and what becomes of them there.
//!
//! To the next relay this one is a user, whose parcel it is. Its identifier there follows from the
//! number here, so that an attempt after a crash opens the same one. Once the next relay has the
//! file, it answers for it, and its content here is removed; this one asks it what becomes of it.
//!
//! A large file is sent on while it arrives. The next relay gets its digest once it has arrived as
//! a whole, and doesn't take it before.

use std::sync::Arc;

use xdfs_proto::digest::DigestValue;
use xdfs_proto::relay::{
    PARCEL_LIFE_S_MAX, ParcelEnd, ParcelOrder, ParcelState, ParcelStatus, parcel_path,
};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault, Side};
use xdfs_spool::Parcel;

use super::attempt::{Attempt, Failed, Went};
use super::parcels::Relay;
use super::sending::Sending;
use super::steps::{self, Opened};
use super::tally::Tally;
use super::target;
use crate::client::Client;

const OPERATION: &str = "send the parcel on";

/// The next relay of a parcel.
fn next_of(parcel: &Parcel) -> Result<&str, Failed> {
    let next = parcel.order.next.first();
    next.map(String::as_str).ok_or_else(|| {
        let cause = "it has no other relay to go to";
        Failed::Never(Fault::new(Code::Internal, OPERATION, cause))
    })
}

/// Does something in a session with the next relay.
fn at_next<T>(
    (relay, parcel, attempt): (&Relay, &Parcel, &Arc<Attempt>),
    run: impl FnOnce(&Onward<'_>) -> Result<T, Failed>,
) -> Result<T, Failed> {
    let place = target::parse_relay(next_of(parcel)?).map_err(Failed::Never)?;
    let access = relay.current.access();
    let user = &parcel.order.user;
    target::with(&relay.links, &access, (user, &place), |client| {
        run(&Onward(Sending {
            relay,
            parcel,
            attempt,
            client,
        }))
    })
}

/// Sends a parcel to the next relay.
///
/// # Errors
/// The next relay doesn't have it, or it couldn't be entered in the spool that it does.
pub(super) fn hand_on(
    relay: &Relay,
    parcel: &Parcel,
    attempt: &Arc<Attempt>,
) -> Result<Went, Failed> {
    at_next((relay, parcel, attempt), |onward| {
        onward.offer(parcel)?;
        let there = onward.status()?;
        match steps::opened(there.state, there.fault.is_some()) {
            Opened::Send => onward.send()?,
            Opened::Anew => return onward.send_anew(),
            Opened::Refused => {
                let cause = "it was cancelled at the next relay";
                return Err(Failed::Never(Fault::new(Code::Cancelled, OPERATION, cause)));
            }
            Opened::Handed => {}
        }
        onward.handed()
    })
}

/// Asks the relay that has a parcel what has become of it.
///
/// # Errors
/// It can't be asked, or doesn't know the parcel.
pub(super) fn follow(
    relay: &Relay,
    parcel: &Parcel,
    attempt: &Arc<Attempt>,
) -> Result<Went, Failed> {
    at_next((relay, parcel, attempt), |onward| {
        if parcel.retry_wanted {
            onward.put_back()?;
        }
        onward.look()
    })
}

/// Cancels a parcel at the next relay.
///
/// # Errors
/// It can't be asked.
pub(super) fn recall(
    relay: &Relay,
    parcel: &Parcel,
    attempt: &Arc<Attempt>,
) -> Result<Went, Failed> {
    at_next((relay, parcel, attempt), |onward| onward.recall())
}

struct Onward<'a>(Sending<'a>);

impl Onward<'_> {
    fn client(&self) -> &Client {
        self.0.client
    }

    fn failed(&self, fault: Fault) -> Failed {
        let mut fault = fault.at(&self.client().machine());
        if fault.side == Side::Remote {
            // The user knows this relay, and the target, but not the relays between.
            let cause = fault.about("");
            (fault.operation, fault.cause) = (OPERATION.into(), cause);
            fault.machine = None;
            fault = fault.local();
        }
        self.0.failed(fault)
    }

    fn alter(
        &self,
        alter: impl FnOnce(&mut Parcel) -> Result<(), Fault> + Send + 'static,
    ) -> Result<Parcel, Failed> {
        let Sending { relay, parcel, .. } = &self.0;
        let altered = relay.spool.alter(parcel.number, relay.now_s(), alter);
        altered.map_err(|fault| self.failed(fault))
    }

    fn id(&self) -> CopyId {
        self.0.relay.spool.id_beyond(self.0.parcel)
    }

    /// Opens the parcel there, as it is now.
    fn offer(&self, parcel: &Parcel) -> Result<(), Failed> {
        let Sending { relay, .. } = &self.0;
        if !parcel.offered {
            // First, so that a cancellation reaches what may be there.
            self.alter(|parcel| {
                parcel.offered = true;
                Ok(())
            })?;
        }
        let order = &parcel.order;
        let left_s = parcel.expires_s().saturating_sub(relay.now_s());
        let life_s = u32::try_from(left_s).unwrap_or(u32::MAX);
        let passed = order.passed.iter().copied();
        let mut order = ParcelOrder {
            id: self.id(),
            overwrite: order.overwrite,
            tree: order.tree,
            bytes: order.bytes,
            life_s: life_s.clamp(1, PARCEL_LIFE_S_MAX),
            target: order.target.clone(),
            name: order.name.clone(),
            digest: parcel.digest,
            next: order.next[1..].to_vec(),
            passed: passed.chain([relay.spool.identity()]).collect(),
            of: self.sharer()?,
            in_order: order.in_order.clone(),
            ahead: parcel.state == ParcelState::Arriving,
        };
        match self.client().open_parcel(order.clone()) {
            // The next relay doesn't have the other one, or its file, any more.
            Err(fault) if fault.code == Code::NotFound && order.of.is_some() => {
                order.of = None;
                let offered = self.client().open_parcel(order);
                offered.map_err(|fault| self.failed(fault))
            }
            offered => offered.map_err(|fault| self.failed(fault)),
        }
    }

    /// The identifier there of a parcel with the same file, which comes first.
    fn sharer(&self) -> Result<Option<CopyId>, Failed> {
        let Sending { relay, parcel, .. } = &self.0;
        if parcel.content == parcel.number {
            return Ok(None);
        }
        match relay.spool.parcel(parcel.content) {
            Ok(first)
                if first.state == ParcelState::Held
                    && first.handed_to.is_none()
                    && first.order.next.first() == parcel.order.next.first() =>
            {
                // Otherwise the file would go there twice.
                let cause = "another parcel with the same file goes first";
                Err(Failed::Later(Fault::new(Code::Busy, OPERATION, cause)))
            }
            Ok(first) if first.offered && first.order.next.first() == parcel.order.next.first() => {
                Ok(Some(relay.spool.id_beyond(&first)))
            }
            // It goes another way, or is forgotten.
            Ok(_) => Ok(None),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(self.failed(fault)),
        }
    }

    fn status(&self) -> Result<ParcelStatus, Failed> {
        let status = self.client().parcel_status_as_sent(self.id());
        status.map_err(|fault| self.failed(fault))
    }

    fn send(&self) -> Result<(), Failed> {
        let complete = || self.offer(&self.0.now()?);
        let sent = self.0.upload(&parcel_path(self.id()), complete)?;
        let digest = self.0.now()?.digest;
        // The other side compares it, too: this relay may have read something else than it took.
        match digest != DigestValue::None && sent != digest {
            true => {
                let cause = "the file has another digest than its source had";
                let fault = Fault::new(Code::IntegrityMismatch, OPERATION, cause);
                Err(Failed::Never(fault))
            }
            false => Ok(()),
        }
    }

    /// The time of the parcel was over there before all of it had arrived: another one is opened.
    fn send_anew(&self) -> Result<Went, Failed> {
        self.alter(|parcel| {
            parcel.sent_anew += 1;
            Ok(())
        })?;
        let cause = "the next relay has given it up before all of it was there";
        Err(Failed::Later(Fault::new(Code::Cancelled, OPERATION, cause)))
    }

    /// Enters that the next relay has the file.
    fn handed(&self) -> Result<Went, Failed> {
        let next = next_of(self.0.parcel)?.to_owned();
        self.alter(move |parcel| steps::handed(parcel, next))?;
        Ok(Went::On)
    }

    /// Has it tried at once there.
    fn put_back(&self) -> Result<(), Failed> {
        match self.client().end_parcel(self.id(), ParcelEnd::Retry) {
            // It is in a state in which there is nothing to try.
            Err(fault) if fault.code != Code::InvalidArgument => return Err(self.failed(fault)),
            _ => {}
        }
        self.alter(|parcel| {
            parcel.retry_wanted = false;
            Ok(())
        })?;
        Ok(())
    }

    /// Enters what has become of it.
    fn look(&self) -> Result<Went, Failed> {
        let Sending { relay, parcel, .. } = &self.0;
        let asked = self.client().parcel_status_as_sent(self.id());
        let mut status = asked.map_err(|fault| match fault.code {
            Code::NotFound => {
                let cause = "the relay that had it doesn't know it any more";
                Failed::Never(Fault::new(Code::NotFound, OPERATION, cause))
            }
            _ => self.failed(fault),
        })?;
        if status.holder.is_none() {
            status.holder = Some(next_of(parcel)?.to_owned());
        }
        status.fault = status.fault.map(|mut fault| {
            fault.machine = None;
            match status.is_fault_there {
                true => fault.remote(),
                false => fault.local(),
            }
        });
        let (state, ended) = (status.state, status.clone());
        relay.looked(parcel.number, Some(status));
        if !state.is_end() {
            return Ok(Went::On);
        }
        if state == ParcelState::Dead {
            let (id, user) = (parcel.order.id, &parcel.order.user);
            let target = &parcel.order.target;
            let holder = &ended.holder;
            tracing::error!(%id, user, target, ?holder, "a parcel was given up at another relay");
        }
        self.alter(move |parcel| {
            steps::ended_beyond(parcel, ended);
            Ok(())
        })?;
        let tally = &relay.tally;
        match state {
            ParcelState::Delivered => tally.delivered(parcel),
            ParcelState::Cancelled => Tally::count(&tally.cancelled),
            _ => Tally::count(&tally.dead),
        }
        Ok(Went::Over)
    }

    fn recall(&self) -> Result<Went, Failed> {
        match self.client().end_parcel(self.id(), ParcelEnd::Cancel) {
            Ok(()) => self.look(),
            // It was never opened there, or is forgotten since long.
            Err(fault) if fault.code == Code::NotFound => {
                let Sending { relay, parcel, .. } = &self.0;
                relay
                    .cancelled(parcel.number)
                    .map_err(|fault| self.failed(fault))?;
                Ok(Went::Over)
            }
            Err(fault) => Err(self.failed(fault)),
        }
    }
}
