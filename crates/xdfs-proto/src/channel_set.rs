//! The channels of a session on one side: which stay or leave, when a leaving one may be closed,
//! and when the session has ended.
//!
//! ```text
//!  up()           leave(), Leave came           Step::SayLeave        Leave came, nothing owed
//! -----> Staying -------------------> Leaving -----------------> Said ----------------> (gone)
//!           |                            |                        |     Step::Close
//!           +--------- down() -----------+-- silence: Step::GiveUp --------------------> (gone)
//! ```
//!
//! The machine doesn't know the traffic of a channel: the caller describes it with each
//! [`ChannelSet::step`], called for every channel from time to time. Only this module implements
//! rules S-21 to S-25 of the specification.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::ChannelIndex;

/// The caller's view of a channel.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// A data frame is partly sent.
    pub in_block: bool,
    /// Output is pending, or a frame is being read.
    pub busy: bool,
    /// Data frames of either side are unacknowledged.
    pub owes: bool,
    /// Time of the last input.
    pub heard_at: Duration,
}

/// An action on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send LEAVE on it. Afterwards no data frame, and no control frame except ACK, may follow
    /// there as long as another channel is open.
    SayLeave,
    /// Close it in an orderly way.
    Close,
    /// Treat it as broken: the other side is silent.
    GiveUp,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    /// Since when it has been leaving.
    leaving: Option<Duration>,
    said: bool,
    heard: bool,
    /// The caller has been asked to close it.
    closing: bool,
}

/// The channels of one side of a session. See the module documentation.
#[derive(Clone, Debug)]
pub struct ChannelSet {
    idle_timeout: Duration,
    channels: BTreeMap<ChannelIndex, Channel>,
    ended: bool,
}

impl ChannelSet {
    /// A session without channels. A leaving channel is given up after `idle_timeout` of silence.
    #[must_use]
    pub fn new(idle_timeout: Duration) -> Self {
        Self {
            idle_timeout,
            channels: BTreeMap::new(),
            ended: false,
        }
    }

    /// Adds a channel that has opened.
    pub fn up(&mut self, index: ChannelIndex) {
        self.channels.insert(index, Channel::default());
    }

    /// Removes a channel, for whatever reason.
    pub fn down(&mut self, index: ChannelIndex) {
        self.channels.remove(&index);
    }

    /// Number of open channels, including leaving ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether no channel is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Number of open channels that aren't leaving.
    #[must_use]
    pub fn staying(&self) -> usize {
        let stays = |c: &&Channel| c.leaving.is_none();
        self.channels.values().filter(stays).count()
    }

    /// Whether another channel may join a session of at most `most`. Leaving channels don't count,
    /// but a peer whose channels never finish leaving gets no more than twice as many.
    #[must_use]
    pub fn may_join(&self, most: usize) -> bool {
        self.staying() < most && self.len() < most.saturating_mul(2)
    }

    /// Whether a channel is leaving, so that it takes no further data frame.
    #[must_use]
    pub fn is_leaving(&self, index: ChannelIndex) -> bool {
        let channel = self.channels.get(&index);
        channel.is_some_and(|c| c.leaving.is_some())
    }

    /// Whether LEAVE was sent there: control frames use it only as a last resort.
    #[must_use]
    pub fn has_left(&self, index: ChannelIndex) -> bool {
        self.channels.get(&index).is_some_and(|c| c.said)
    }

    /// Lets a channel leave; `false` if it is leaving already, or isn't open.
    pub fn leave(&mut self, index: ChannelIndex, now: Duration) -> bool {
        let channel = self.channels.get_mut(&index);
        let Some(channel) = channel.filter(|c| c.leaving.is_none()) else {
            return false;
        };
        channel.leaving = Some(now);
        true
    }

    /// Handles LEAVE on a channel: this side leaves too.
    pub fn handle_leave(&mut self, index: ChannelIndex, now: Duration) {
        self.leave(index, now);
        if let Some(channel) = self.channels.get_mut(&index) {
            channel.heard = true;
        }
    }

    /// The next action on a channel, if any. The last channel is never closed this way, even if all
    /// are leaving.
    #[must_use]
    pub fn step(&mut self, index: ChannelIndex, view: View, now: Duration) -> Option<Step> {
        let open = self.channels.values().filter(|c| !c.closing).count();
        let channel = self.channels.get_mut(&index)?;
        let since = channel.leaving.filter(|_| !channel.closing)?;
        let is_last = open <= 1;
        let silent = since.max(view.heard_at) + self.idle_timeout <= now;
        if silent && !is_last && !view.in_block {
            channel.closing = true;
            return Some(Step::GiveUp);
        }
        if !channel.said {
            channel.said = !view.in_block;
            return channel.said.then_some(Step::SayLeave);
        }
        let done = channel.heard && !view.busy && !view.owes && !is_last;
        channel.closing = done;
        done.then_some(Step::Close)
    }

    /// Ends the session if nothing is left to do on this side (`idle`): EOFT is to be sent, once,
    /// and all channels to be closed. Returns whether it has ended now.
    pub fn end(&mut self, idle: bool) -> bool {
        let ends = idle && !self.ended;
        self.ended |= ends;
        ends
    }

    /// Handles EOFT: it is to be answered, and all channels are to be closed, unless that has been
    /// done. Returns whether the session has ended now.
    pub fn handle_eoft(&mut self) -> bool {
        !std::mem::replace(&mut self.ended, true)
    }

    /// Whether the session has ended by EOFT.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ChannelIndex = ChannelIndex(0);
    const B: ChannelIndex = ChannelIndex(1);
    const NOW: Duration = Duration::ZERO;
    const IDLE: Duration = Duration::from_secs(60);
    const QUIET: View = View {
        in_block: false,
        busy: false,
        owes: false,
        heard_at: NOW,
    };

    fn two() -> ChannelSet {
        let mut set = ChannelSet::new(IDLE);
        set.up(A);
        set.up(B);
        set
    }

    /// A set in which A has left on both sides.
    fn left() -> ChannelSet {
        let mut set = two();
        assert!(set.leave(A, NOW) && !set.leave(A, NOW));
        assert_eq!(set.step(A, QUIET, NOW), Some(Step::SayLeave));
        assert_eq!(set.step(A, QUIET, NOW), None);
        set.handle_leave(A, NOW);
        set
    }

    #[test]
    fn s21_leave_waits_for_the_end_of_a_block_and_is_answered() {
        let mut set = two();
        set.handle_leave(A, NOW);
        assert!(set.is_leaving(A) && !set.has_left(A) && !set.is_leaving(B));
        let in_block = View {
            in_block: true,
            ..QUIET
        };
        assert_eq!(set.step(A, in_block, NOW), None);
        assert_eq!(set.step(A, QUIET, NOW), Some(Step::SayLeave));
        assert!(set.has_left(A));
        assert_eq!(set.step(B, QUIET, NOW), None);
    }

    #[test]
    fn s22_a_channel_is_closed_when_nothing_is_owed() {
        for (owes, busy) in [(true, false), (false, true)] {
            let mut set = left();
            let view = View {
                owes,
                busy,
                ..QUIET
            };
            assert_eq!(set.step(A, view, NOW), None);
            assert_eq!(set.step(A, QUIET, NOW), Some(Step::Close));
            assert_eq!(set.step(A, QUIET, NOW), None, "it is told once");
        }
    }

    #[test]
    fn s22_a_silent_one_is_given_up() {
        let mut set = left();
        let view = View {
            owes: true,
            ..QUIET
        };
        let later = IDLE - Duration::from_millis(1);
        assert_eq!(set.step(A, view, later), None);
        assert_eq!(set.step(A, view, IDLE), Some(Step::GiveUp));
    }

    #[test]
    fn s23_the_last_channel_stays() {
        let mut set = left();
        set.handle_leave(B, NOW);
        assert_eq!(set.step(B, QUIET, NOW), Some(Step::SayLeave));
        assert_eq!(set.step(A, QUIET, IDLE), Some(Step::GiveUp));
        // Before the caller has closed the other one.
        assert_eq!(set.step(B, QUIET, IDLE * 2), None);
        set.down(A);
        assert_eq!(set.step(B, QUIET, IDLE * 2), None);
        assert_eq!((set.len(), set.staying()), (1, 0));
        set.up(A);
        assert_eq!(set.step(B, QUIET, NOW), Some(Step::Close));
    }

    #[test]
    fn s23_those_that_leave_make_room_for_as_many() {
        let mut set = two();
        assert!(!set.may_join(2) && set.may_join(3));
        set.leave(A, NOW);
        set.leave(B, NOW);
        assert!(set.may_join(2));
        set.up(ChannelIndex(2));
        assert!(set.may_join(2));
        set.leave(ChannelIndex(2), NOW);
        set.up(ChannelIndex(3));
        assert!(!set.may_join(2));
    }

    #[test]
    fn s25_eoft_is_said_once() {
        let mut set = two();
        assert!(!set.end(false) && !set.has_ended());
        assert!(set.end(true) && !set.end(true) && !set.handle_eoft());
        let mut set = two();
        assert!(set.handle_eoft() && !set.handle_eoft() && !set.end(true));
    }
}
