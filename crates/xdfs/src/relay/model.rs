//! A model of two relays and a target: every interleaving of the steps of their attempts, of the
//! sender and of its end, with a kill of any hop between any two steps.
//!
//! Decisions and entries are those of [`steps`], and parcels those of the spool. Entries are
//! durable at once, as in the spool; what an attempt knows is lost by a kill. The model has one
//! file of two fragments, and a second identifier at the second relay, for one that was given up
//! there before all of it had arrived.

use std::collections::HashMap;
use std::fmt::Write as _;

use xdfs_proto::digest::DigestValue;
use xdfs_proto::relay::{ParcelState, ParcelStatus};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault};
use xdfs_spool::{NewParcel, Parcel, Placed};

use super::steps::{self, Opened, Renamed, Step};

/// Fragments of the file.
const ALL: u8 = 2;
const DIGEST: DigestValue = DigestValue::Crc64Nvme(7);
/// The first relay, and the second one with each of two identifiers.
const HOPS: usize = 3;
const FIRST: usize = 0;

/// Where an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Offer,
    Ask,
    Send,
    Close,
    /// The answer to the end of the upload is on its way.
    Published,
    Hand,
    Look,
    Recall,
    Begin,
    Upload,
    Place,
    Rename {
        is_earlier: bool,
    },
    /// The answer is on its way.
    Renamed(Renamed),
    Enter,
    Find,
    Remove,
    Removed,
}

/// A relay with one parcel.
#[derive(Clone, Debug, Default)]
struct Hop {
    parcel: Option<Parcel>,
    /// Durable fragments.
    stored: u8,
    /// A running attempt.
    attempt: Option<At>,
}

impl Hop {
    fn state(&self) -> Option<ParcelState> {
        Some(self.parcel.as_ref()?.state)
    }

    fn is_whole(&self) -> bool {
        let has_content = self.parcel.as_ref().is_some_and(Parcel::has_content);
        has_content && self.stored == ALL && self.state() != Some(ParcelState::Arriving)
    }

    /// Changes the parcel as the spool does.
    fn alter(&mut self, alter: impl FnOnce(&mut Parcel) -> Result<(), Fault>) -> bool {
        let Some(old) = &self.parcel else {
            return false;
        };
        let mut new = old.clone();
        let is_refused = alter(&mut new).is_err();
        if is_refused || new.state != old.state && !old.state.may_become(new.state) {
            return false;
        }
        if old.has_content() && !new.has_content() {
            self.stored = 0;
        }
        self.parcel = Some(new);
        true
    }
}

#[derive(Clone, Debug)]
struct World {
    hops: [Hop; HOPS],
    /// What is at the target of the file of each hop under a hidden name: fragments, and whether it
    /// is whole.
    hidden: [(u8, bool); HOPS],
    /// How often a file has got the name.
    named: u8,
    /// The sender is there.
    is_sending: bool,
    /// The sender knows that the first relay has the file.
    was_left: bool,
    was_cancelled: bool,
    has_expired: [bool; HOPS],
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The sender sends a fragment.
    Send,
    /// The first relay takes the file.
    Take,
    /// The sender breaks off, or comes again.
    Leave,
    Come,
    Cancel,
    /// The life of a parcel is over that hasn't arrived.
    Expire(usize),
    Start(usize),
    Step(usize),
    /// A relay is killed and starts again.
    Kill(usize),
    KillTarget,
}

fn parcel(number: u64, ahead: bool, next: &[&str]) -> Parcel {
    Parcel {
        number,
        content: number,
        order: NewParcel {
            user: "alice".into(),
            id: CopyId([1; 16]),
            target: "xdfs://target/x".into(),
            name: b"x".to_vec(),
            overwrite: true,
            tree: false,
            bytes: ALL.into(),
            life_s: 1,
            digest: DigestValue::None,
            next: next.iter().map(|next| (*next).to_owned()).collect(),
            passed: Vec::new(),
            of: None,
            in_order: None,
            ahead,
        },
        taken: 0,
        state: ParcelState::Arriving,
        opened_s: 0,
        ended_s: 0,
        mode: None,
        mtime_ns: None,
        digest: DigestValue::None,
        placed: None,
        handed_to: None,
        offered: false,
        sent_anew: 0,
        begun: None,
        cancel_wanted: false,
        retry_wanted: false,
        fault: None,
        attempts: 0,
    }
}

fn late() -> Fault {
    Fault::new(Code::DeadlineExceeded, "deliver", "late")
}

fn status(parcel: &Parcel) -> ParcelStatus {
    ParcelStatus {
        state: parcel.state,
        bytes: parcel.order.bytes,
        arrived: 0,
        delivered: 0,
        attempts: 0,
        age_s: 0,
        next_ms: None,
        digest: parcel.digest,
        target: parcel.order.target.clone(),
        fault: parcel.fault.clone(),
        is_fault_there: false,
        holder: Some("second".into()),
    }
}

impl World {
    fn new() -> Self {
        let mut hops: [Hop; HOPS] = Default::default();
        hops[FIRST].parcel = Some(parcel(0, false, &["second"]));
        Self {
            hops,
            hidden: [(0, false); HOPS],
            named: 0,
            is_sending: true,
            was_left: false,
            was_cancelled: false,
            has_expired: [false; HOPS],
        }
    }

    fn first(&self) -> &Parcel {
        self.hops[FIRST].parcel.as_ref().unwrap()
    }

    /// The second relay's number with the identifier that the first one uses.
    fn beyond(&self) -> usize {
        1 + self.first().sent_anew as usize
    }

    /// Whether somebody sends a file to a hop.
    fn is_being_sent(&self, hop: usize) -> bool {
        match hop {
            FIRST => self.is_sending,
            _ => {
                let is_sent = matches!(self.hops[FIRST].attempt, Some(At::Send | At::Close));
                is_sent && self.beyond() == hop
            }
        }
    }

    fn step_of(&self, hop: usize) -> Step {
        let parcel = self.hops[hop].parcel.as_ref();
        parcel.map_or(Step::Nothing, |parcel| {
            steps::next(parcel, self.is_being_sent(hop), 0)
        })
    }

    fn is_over(&self) -> bool {
        let is_quiet = |hop: usize| {
            let own = &self.hops[hop];
            let has_ended = own.state().is_none_or(ParcelState::is_end);
            own.attempt.is_none() && has_ended && self.step_of(hop) == Step::Nothing
        };
        (0..HOPS).all(is_quiet)
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let first = self.first();
        let takes = first.state == ParcelState::Arriving && !first.cancel_wanted;
        if takes && self.is_sending {
            events.push(match self.hops[FIRST].stored {
                ALL => Event::Take,
                _ => Event::Send,
            });
        }
        if !self.was_left {
            events.push(if self.is_sending {
                Event::Leave
            } else {
                Event::Come
            });
        }
        if !self.was_cancelled {
            events.push(Event::Cancel);
        }
        for hop in 0..HOPS {
            let own = &self.hops[hop];
            let waits = own.state() == Some(ParcelState::Arriving) && own.attempt.is_none();
            // Not again and again: there are so many identifiers.
            let may_expire = hop + 1 < HOPS || first.state.is_end();
            if waits && may_expire && !self.is_being_sent(hop) && !self.has_expired[hop] {
                events.push(Event::Expire(hop));
            }
            match own.attempt {
                Some(_) if self.may_step(hop) => events.push(Event::Step(hop)),
                None if self.step_of(hop) != Step::Nothing => events.push(Event::Start(hop)),
                _ => {}
            }
            if own.attempt.is_some() || self.has_session(FIRST) && self.beyond() == hop {
                events.push(Event::Kill(hop));
            }
        }
        if (0..HOPS).any(|hop| self.is_at_target(hop)) {
            events.push(Event::KillTarget);
        }
        events
    }

    /// Whether an attempt needs the next relay.
    fn has_session(&self, hop: usize) -> bool {
        let at = self.hops[hop].attempt;
        let needs = |at| {
            matches!(
                at,
                At::Ask | At::Send | At::Close | At::Published | At::Look
            )
        };
        at.is_some_and(needs)
    }

    /// Whether an attempt needs the target.
    fn is_at_target(&self, hop: usize) -> bool {
        let at = self.hops[hop].attempt;
        at.is_some_and(|at| {
            matches!(
                at,
                At::Upload | At::Rename { .. } | At::Renamed(_) | At::Find | At::Remove
            )
        })
    }

    /// Whether an attempt doesn't wait for something.
    fn may_step(&self, hop: usize) -> bool {
        let own = &self.hops[hop];
        let there = match own.attempt {
            Some(At::Send) => self.hops[self.beyond()].stored,
            Some(At::Upload) => self.hidden[hop].0,
            _ => return true,
        };
        let parcel = own.parcel.as_ref().unwrap();
        let is_awaited = parcel.state == ParcelState::Arriving
            && !parcel.cancel_wanted
            && self.is_being_sent(hop);
        there < own.stored || !is_awaited
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::Send => self.hops[FIRST].stored += 1,
            Event::Take => {
                let was_taken = self.hops[FIRST].alter(|parcel| {
                    parcel.state = ParcelState::Held;
                    parcel.digest = DIGEST;
                    Ok(())
                });
                assert!(was_taken);
                (self.is_sending, self.was_left) = (false, true);
            }
            Event::Leave => self.is_sending = false,
            Event::Come => self.is_sending = true,
            Event::Cancel => {
                self.was_cancelled = true;
                self.cancel(FIRST);
            }
            Event::Expire(hop) => {
                self.has_expired[hop] = true;
                self.hops[hop].alter(|parcel| {
                    steps::give_up(parcel, 0, late());
                    Ok(())
                });
            }
            Event::Start(hop) => {
                let at = match self.step_of(hop) {
                    Step::Nothing | Step::Expire => unreachable!("it isn't started"),
                    Step::Recall => At::Recall,
                    Step::Withdraw => At::Find,
                    Step::Follow => At::Look,
                    Step::HandOn => At::Offer,
                    Step::Deliver => At::Begin,
                };
                self.hops[hop].attempt = Some(at);
            }
            Event::Step(hop) => self.step(hop),
            Event::Kill(hop) => self.kill(hop),
            Event::KillTarget => {
                // What is durable there stays.
                for hop in 0..HOPS {
                    if self.is_at_target(hop) {
                        self.fail(hop);
                    }
                }
            }
        }
        self.check();
    }

    fn kill(&mut self, hop: usize) {
        self.hops[hop].attempt = None;
        match hop {
            FIRST => self.is_sending = false,
            // Its sessions end.
            _ if self.beyond() == hop && self.has_session(FIRST) => self.fail(FIRST),
            _ => {}
        }
    }

    fn cancel(&mut self, hop: usize) {
        self.hops[hop].alter(|parcel| {
            steps::cancel(parcel);
            Ok(())
        });
    }

    /// Ends an attempt that has failed.
    fn fail(&mut self, hop: usize) {
        self.fail_after(hop, false);
    }

    fn fail_after(&mut self, hop: usize, was_withdrawn: bool) {
        let own = &mut self.hops[hop];
        if own.attempt.take().is_none() {
            return;
        }
        let parcel = own.parcel.as_ref().unwrap();
        if parcel.cancel_wanted && steps::ends_with_attempt(parcel, was_withdrawn) {
            own.alter(|parcel| {
                steps::cancelled(parcel);
                Ok(())
            });
        }
    }

    fn go(&mut self, hop: usize, at: At) {
        if let Some(attempt) = &mut self.hops[hop].attempt {
            *attempt = at;
        }
    }

    fn step(&mut self, hop: usize) {
        let Some(at) = self.hops[hop].attempt else {
            return;
        };
        let parcel = self.hops[hop].parcel.clone().unwrap();
        let is_unwanted = parcel.cancel_wanted;
        let has_arrived = parcel.state == ParcelState::Held;
        let beyond = self.beyond();
        match at {
            At::Offer if !parcel.offered => {
                self.hops[hop].alter(|parcel| {
                    parcel.offered = true;
                    Ok(())
                });
            }
            At::Offer => {
                self.offer(&parcel);
                self.go(hop, At::Ask);
            }
            At::Ask => {
                let there = self.hops[beyond].parcel.as_ref().unwrap();
                match steps::opened(there.state, there.fault.is_some()) {
                    Opened::Send => self.go(hop, At::Send),
                    Opened::Handed => self.go(hop, At::Hand),
                    Opened::Refused => self.fail(hop),
                    Opened::Anew => {
                        assert!(beyond + 1 < HOPS, "more identifiers than ends");
                        self.hops[hop].alter(|parcel| {
                            parcel.sent_anew += 1;
                            Ok(())
                        });
                        self.fail(hop);
                    }
                }
            }
            At::Send => {
                let there = self.hops[beyond].parcel.as_ref().unwrap();
                let takes = there.state == ParcelState::Arriving && !there.cancel_wanted;
                if !takes || is_unwanted {
                    self.fail(hop);
                } else if self.hops[beyond].stored < self.hops[hop].stored {
                    self.hops[beyond].stored += 1;
                } else if !has_arrived {
                    self.fail(hop);
                } else if there.order.ahead {
                    self.offer(&parcel);
                } else {
                    self.go(hop, At::Close);
                }
            }
            At::Close => {
                let own = &mut self.hops[beyond];
                let there = own.parcel.as_ref().unwrap();
                let is_whole = own.stored == ALL && there.order.digest == DIGEST;
                let takes = there.state == ParcelState::Arriving && !there.cancel_wanted;
                if takes && is_whole {
                    own.alter(|parcel| {
                        parcel.state = ParcelState::Held;
                        parcel.digest = DIGEST;
                        Ok(())
                    });
                    self.go(hop, At::Published);
                } else {
                    self.fail(hop);
                }
            }
            At::Published => self.go(hop, At::Hand),
            At::Hand => {
                let own = &mut self.hops[hop];
                match own.alter(|parcel| steps::handed(parcel, "second".into())) {
                    true => own.attempt = None,
                    false => self.fail(hop),
                }
            }
            At::Recall => {
                if self.hops[beyond].parcel.is_some() {
                    self.cancel(beyond);
                    self.go(hop, At::Look);
                } else {
                    self.hops[hop].alter(|parcel| {
                        steps::cancelled(parcel);
                        Ok(())
                    });
                    self.hops[hop].attempt = None;
                }
            }
            At::Look => {
                let status = status(self.hops[beyond].parcel.as_ref().unwrap());
                if status.state.is_end() {
                    self.hops[hop].alter(|parcel| {
                        steps::ended_beyond(parcel, status);
                        Ok(())
                    });
                }
                self.hops[hop].attempt = None;
            }
            At::Begin if parcel.placed.is_some() => {
                self.go(hop, At::Rename { is_earlier: true });
            }
            At::Begin => {
                if !has_arrived {
                    self.hops[hop].alter(|parcel| {
                        parcel.begun = Some(b"hidden".to_vec());
                        Ok(())
                    });
                }
                self.go(hop, At::Upload);
            }
            At::Upload => {
                if is_unwanted {
                    self.fail(hop);
                } else if self.hidden[hop].0 < self.hops[hop].stored {
                    self.hidden[hop].0 += 1;
                } else if has_arrived && self.hidden[hop].0 == ALL {
                    self.hidden[hop].1 = true;
                    self.go(hop, At::Place);
                } else {
                    self.fail(hop);
                }
            }
            At::Place => {
                let placed = Placed {
                    hidden: b"hidden".to_vec(),
                    target: b"x".to_vec(),
                    directory: None,
                };
                match !is_unwanted && self.hops[hop].alter(|p| steps::placed(p, placed)) {
                    true => self.go(hop, At::Rename { is_earlier: false }),
                    false => self.fail(hop),
                }
            }
            At::Rename { .. } if is_unwanted => self.fail(hop),
            At::Rename { is_earlier } => {
                let refused = match self.hidden[hop].1 {
                    true => None,
                    false => Some(Code::NotFound),
                };
                if refused.is_none() {
                    self.hidden[hop] = (0, false);
                    self.named += 1;
                }
                self.go(hop, At::Renamed(steps::renamed(refused, is_earlier)));
            }
            At::Renamed(Renamed::Done | Renamed::Earlier) => self.go(hop, At::Enter),
            At::Renamed(Renamed::Failed) => self.fail(hop),
            At::Enter => {
                let own = &mut self.hops[hop];
                own.alter(|parcel| {
                    steps::delivered(parcel, 1);
                    Ok(())
                });
                own.attempt = None;
            }
            At::Find if parcel.placed.is_some() => match self.hidden[hop].1 {
                true => {
                    self.hops[hop].alter(|parcel| {
                        steps::unplaced(parcel);
                        Ok(())
                    });
                    self.go(hop, At::Remove);
                }
                false => self.go(hop, At::Enter),
            },
            At::Find => self.go(hop, At::Remove),
            At::Remove => {
                self.hidden[hop] = (0, false);
                self.go(hop, At::Removed);
            }
            At::Removed => self.fail_after(hop, true),
        }
    }

    /// Opens the parcel at the second relay.
    fn offer(&mut self, from: &Parcel) {
        let number = self.beyond();
        let own = &mut self.hops[number];
        let is_ahead = from.state == ParcelState::Arriving;
        let new = match own.parcel.take() {
            None => parcel(number as u64, is_ahead, &[]),
            Some(there) => there,
        };
        let is_open = new.state == ParcelState::Arriving;
        own.parcel = Some(match is_ahead || !is_open {
            true => new,
            false => Parcel {
                order: NewParcel {
                    digest: from.digest,
                    ahead: false,
                    ..new.order
                },
                ..new
            },
        });
    }

    fn check(&self) {
        assert!(self.named <= 1, "delivered twice: {self:#?}");
        let ends = self.hops.iter().map(Hop::state);
        for end in ends {
            match end {
                Some(ParcelState::Delivered) => {
                    assert_eq!(self.named, 1, "not delivered: {self:#?}");
                }
                Some(ParcelState::Cancelled) if self.first().state.is_end() => {
                    let is_first = self.first().state == ParcelState::Cancelled;
                    assert!(!is_first || self.named == 0, "delivered: {self:#?}");
                }
                _ => {}
            }
        }
        // Nothing is published before the digest of the source is known.
        let has_arrived = self.first().state != ParcelState::Arriving;
        assert!(has_arrived || self.named == 0, "published early: {self:#?}");
        let is_wanted = self.was_left && !self.was_cancelled;
        let is_somewhere = self.named == 1 || self.hops.iter().any(Hop::is_whole);
        assert!(!is_wanted || is_somewhere, "lost: {self:#?}");
    }

    /// Checks an end.
    fn check_over(&self) {
        let first = self.first();
        assert_eq!(
            self.named == 1,
            first.state == ParcelState::Delivered,
            "{self:#?}"
        );
        for (hop, hidden) in self.hops.iter().zip(self.hidden) {
            // A kill while a file that has arrived is sent leaves a part under its hidden name, if
            // it is cancelled before the next attempt: that it was begun isn't entered then.
            let parcel = hop.parcel.as_ref();
            let is_entered = parcel.is_some_and(|own| own.begun.is_some() || own.placed.is_some());
            assert!(
                !is_entered || hidden == (0, false),
                "left behind: {self:#?}"
            );
        }
        assert!(self.hops.iter().all(|hop| hop.stored == 0), "{self:#?}");
        assert!(
            !self.was_left || self.was_cancelled || self.named == 1,
            "{self:#?}"
        );
    }

    /// Everything that decides what can come next.
    fn key(&self, text: &mut String) {
        text.clear();
        for hop in &self.hops {
            if let Some(p) = &hop.parcel {
                let beyond = (
                    p.handed_to.is_some(),
                    p.offered,
                    p.sent_anew,
                    p.cancel_wanted,
                );
                let target = (p.placed.is_some(), p.begun.is_some(), p.fault.is_some());
                let order = (p.order.ahead, p.order.digest != DigestValue::None);
                write!(text, "{:?}{beyond:?}{target:?}{order:?}", p.state).unwrap();
            }
            write!(text, "{}{:?};", hop.stored, hop.attempt).unwrap();
        }
        let ends = (self.was_left, self.was_cancelled, self.has_expired);
        write!(
            text,
            "{:?}{}{}{ends:?}",
            self.hidden, self.named, self.is_sending
        )
        .unwrap();
    }
}

/// Every state is visited; from each of them an end is reached without a kill or a cancellation.
#[test]
fn a_file_comes_once_whatever_is_killed() {
    let mut text = String::new();
    let start = World::new();
    start.key(&mut text);
    let mut seen = HashMap::from([(text.clone(), 0_usize)]);
    let (mut steps, mut ends) = (Vec::new(), Vec::new());
    let mut delivered = 0;
    let mut queue = vec![(0, start)];
    while let Some((from, world)) = queue.pop() {
        if world.is_over() {
            world.check_over();
            delivered += usize::from(world.named == 1);
            ends.push(from);
            continue;
        }
        for event in world.events() {
            let mut next = world.clone();
            next.perform(event);
            next.key(&mut text);
            let number = seen.len();
            let to = *seen.entry(text.clone()).or_insert(number);
            if !matches!(event, Event::Kill(_) | Event::KillTarget | Event::Cancel) {
                steps.push((to, from));
            }
            if to == number {
                queue.push((to, next));
            }
        }
    }
    steps.sort_unstable();
    let mut leads = vec![false; seen.len()];
    ends.iter().for_each(|end| leads[*end] = true);
    while let Some(to) = ends.pop() {
        let first = steps.partition_point(|step| step.0 < to);
        for &(_, from) in steps[first..].iter().take_while(|step| step.0 == to) {
            if !std::mem::replace(&mut leads[from], true) {
                ends.push(from);
            }
        }
    }
    eprintln!("{} states, {delivered} ends with a delivery", seen.len());
    let stuck = leads.iter().filter(|leads| !**leads).count();
    assert_eq!(stuck, 0, "of {} states", seen.len());
    // As many as it takes for the model to be one of all of this.
    assert!(
        seen.len() > 5_000 && delivered > 5,
        "{} {delivered}",
        seen.len()
    );
}
