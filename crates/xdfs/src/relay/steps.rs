//! Decisions about a parcel, without network, clock or storage: what an attempt does next, what an
//! answer comes to, and how the spool's entry changes.
//!
//! The [model](super::model) explores them with a crash of any hop at any step.

use xdfs_proto::relay::{ParcelState, ParcelStatus};
use xdfs_proto::{Code, Fault};
use xdfs_spool::{Parcel, Placed};

/// An attempt at a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is nothing to do.
    Nothing,
    /// Cancel it at the next relay.
    Recall,
    /// Remove what is at the target.
    Withdraw,
    /// Ask the relay that has it.
    Follow,
    /// Give it up: its life is over.
    Expire,
    /// Send it to the next relay.
    HandOn,
    /// Deliver it.
    Deliver,
}

/// The attempt that a parcel needs now.
pub(super) fn next(parcel: &Parcel, is_being_sent: bool, now_s: u64) -> Step {
    let is_late = parcel.expires_s() <= now_s;
    // Of one that arrives, the end of its life is none of an attempt.
    let goes_ahead = parcel.may_go_ahead() && is_being_sent && !is_late;
    if !parcel.is_due() && !goes_ahead {
        return Step::Nothing;
    }
    if parcel.cancel_wanted {
        return match parcel.offered {
            true => Step::Recall,
            false => Step::Withdraw,
        };
    }
    if parcel.handed_to.is_some() {
        return Step::Follow;
    }
    if is_late {
        return Step::Expire;
    }
    match parcel.order.next.is_empty() {
        true => Step::Deliver,
        false => Step::HandOn,
    }
}

/// What follows for a parcel that was opened at the next relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// The file is sent.
    Send,
    /// It was given up there before all of it had arrived: it is opened with another identifier.
    Anew,
    /// Somebody has cancelled it there.
    Refused,
    /// The next relay has it.
    Handed,
}

/// What the state at the next relay comes to.
pub(super) fn opened(there: ParcelState, has_fault: bool) -> Opened {
    match there {
        ParcelState::Arriving => Opened::Send,
        // It never had all of it, so it can't have delivered it.
        ParcelState::Cancelled if has_fault => Opened::Anew,
        ParcelState::Cancelled => Opened::Refused,
        _ => Opened::Handed,
    }
}

/// What the answer to a rename at the target comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renamed {
    /// The file has its name.
    Done,
    /// An earlier attempt has done it, if the directory is the one that it was.
    Earlier,
    /// It failed.
    Failed,
}

/// What the answer to a rename comes to. `is_earlier`: an earlier attempt may have done it.
pub(super) fn renamed(refused: Option<Code>, is_earlier: bool) -> Renamed {
    match refused {
        None => Renamed::Done,
        Some(Code::NotFound) if is_earlier => Renamed::Earlier,
        Some(_) => Renamed::Failed,
    }
}

/// The user wants it ended.
pub(super) fn cancel(parcel: &mut Parcel) {
    match parcel.state {
        // An attempt may be giving the file its name: the next one, or that, decides.
        ParcelState::Held => parcel.cancel_wanted = true,
        // What went ahead is withdrawn first.
        ParcelState::Arriving if parcel.is_ahead() => parcel.cancel_wanted = true,
        ParcelState::Dead if parcel.placed.is_some() || parcel.offered => {
            parcel.state = ParcelState::Held;
            parcel.cancel_wanted = true;
        }
        ParcelState::Arriving | ParcelState::Dead => {
            parcel.state = ParcelState::Cancelled;
            parcel.fault = None;
        }
        _ => {}
    }
}

/// It was ended, here and beyond.
pub(super) fn cancelled(parcel: &mut Parcel) {
    if matches!(
        parcel.state,
        ParcelState::Delivered | ParcelState::Cancelled
    ) {
        return;
    }
    // One that never arrived as a whole may have been given up.
    if parcel.state != ParcelState::Arriving {
        parcel.fault = None;
    }
    parcel.state = ParcelState::Cancelled;
}

/// Whether one whose attempt was ended by the user is over with that: otherwise something is
/// elsewhere, and is withdrawn first. `was_withdrawn`: the attempt has done so.
pub(super) fn ends_with_attempt(parcel: &Parcel, was_withdrawn: bool) -> bool {
    let is_at_target = parcel.begun.is_some() || parcel.placed.is_some();
    !parcel.offered && (!is_at_target || was_withdrawn)
}

/// It is given up.
pub(super) fn give_up(parcel: &mut Parcel, attempts: u32, fault: Fault) {
    // Only a file that has arrived can be put back. The next relay gives up by itself what went
    // ahead, and the target doesn't.
    match parcel.state {
        ParcelState::Arriving if parcel.begun.is_some() => parcel.cancel_wanted = true,
        ParcelState::Arriving => parcel.state = ParcelState::Cancelled,
        ParcelState::Held => parcel.state = ParcelState::Dead,
        _ => return,
    }
    parcel.attempts = parcel.attempts.max(attempts);
    parcel.fault = Some(fault);
}

/// The next relay has it, and answers for it.
pub(super) fn handed(parcel: &mut Parcel, next: String) -> Result<(), Fault> {
    check_held(parcel, "send the parcel on")?;
    parcel.handed_to = Some(next);
    parcel.fault = None;
    Ok(())
}

/// The relay that has it says that it is over.
pub(super) fn ended_beyond(parcel: &mut Parcel, status: ParcelStatus) {
    if parcel.state.is_end() {
        return;
    }
    parcel.state = status.state;
    parcel.attempts = status.attempts;
    parcel.handed_to = status.holder;
    parcel.fault = status.fault;
}

/// All of it is at the target under its hidden name.
pub(super) fn placed(parcel: &mut Parcel, placed: Placed) -> Result<(), Fault> {
    check_held(parcel, "deliver")?;
    parcel.placed = Some(placed);
    Ok(())
}

/// It isn't wanted any more, and was found at the target under its hidden name, which it never gets
/// from now on: an attempt that doesn't find it there knows that this one has removed it.
pub(super) fn unplaced(parcel: &mut Parcel) {
    parcel.begun = parcel.placed.take().map(|placed| placed.hidden);
}

/// It has its name at the target.
pub(super) fn delivered(parcel: &mut Parcel, attempts: u32) {
    if parcel.state == ParcelState::Held {
        parcel.state = ParcelState::Delivered;
        parcel.fault = None;
        parcel.attempts = attempts;
    }
}

fn check_held(parcel: &Parcel, operation: &str) -> Result<(), Fault> {
    match parcel.state {
        ParcelState::Held => Ok(()),
        _ => Err(Fault::new(Code::Cancelled, operation, "it was ended")),
    }
}
