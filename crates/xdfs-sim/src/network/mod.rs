//! The network of a simulation: channels with latency, bounded rate and little room, that stall,
//! break at any byte, fall silent, and change bytes on the way. Bytes of one channel stay in order;
//! those of different channels overtake each other.

mod link;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use xdfs_sys::poll::{Event, Notifier, Token};

use crate::course::Course;
pub(crate) use link::Link;

/// How the network of a run behaves.
#[derive(Clone, Debug)]
pub struct Weather {
    /// Time from one host to the other.
    pub latency: Duration,
    /// Up to how much longer that is for a channel, which draws it once.
    pub jitter: Duration,
    /// Bytes a second of a channel.
    pub rate: u64,
    /// Chance in a thousand that a channel has a twentieth of that.
    pub slow_channels: u64,
    /// Bytes that may be on the way in one direction.
    pub room: usize,
    /// Chance in a thousand, of each write, that the channel breaks in the middle of it.
    pub breaks: u64,
    /// The same for a channel that carries nothing from then on, and of which nobody is told. Also
    /// the chance that a connection is never answered.
    pub silences: u64,
    /// The same for a pause of up to 40 s.
    pub stalls: u64,
    /// The same for a bit of a block that changes on the way.
    pub damages: u64,
    /// The same for a bit that changes where the check of the block doesn't show it.
    pub forgeries: u64,
    /// Chance in a thousand that a connection is refused.
    pub refusals: u64,
    /// The two ends are taken to be on one machine.
    pub local: bool,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(1),
            jitter: Duration::ZERO,
            rate: 1 << 30,
            slow_channels: 0,
            room: 1 << 20,
            breaks: 0,
            silences: 0,
            stalls: 0,
            damages: 0,
            forgeries: 0,
            refusals: 0,
            local: false,
        }
    }
}

/// The network of a world, with one place that a server listens at.
#[derive(Default)]
pub struct Network(Mutex<Inner>);

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) weather: Weather,
    /// Bad things that may still happen: what always breaks gets nowhere.
    faults_left: u64,
    /// The channel that is used after so many further writes breaks.
    breaks_after: Option<u64>,
    pub(crate) links: Vec<Arc<Mutex<Link>>>,
    pub(crate) count: u64,
    /// Channels on their way to the listener, and their numbers.
    pub(crate) arriving: VecDeque<(Duration, Arc<Mutex<Link>>, u64)>,
    pub(crate) listener: Option<(Notifier, Token)>,
    pub(crate) is_listening: bool,
}

impl Inner {
    /// Whether a fault of this chance happens now.
    pub(crate) fn happens(&mut self, course: &Course, permille: u64, fault: &'static str) -> bool {
        let may = permille > 0 && self.faults_left > 0;
        let happens = may && course.choose(|random| random.permille(permille));
        if happens {
            self.faults_left -= 1;
            course.count(fault);
        }
        happens
    }

    /// Whether the channel that is written to breaks now.
    pub(crate) fn breaks(&mut self, course: &Course) -> bool {
        match &mut self.breaks_after {
            Some(0) => {
                self.breaks_after = None;
                course.count("channel broken");
                return true;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.happens(course, self.weather.breaks, "channel broken")
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner().weather.fmt(f)
    }
}

impl Network {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Sets how it behaves, and how many faults it may have.
    pub fn set_weather(&self, weather: Weather, faults: u64) {
        let mut inner = self.inner();
        inner.weather = weather;
        inner.faults_left = faults;
    }

    /// No further fault happens. What is broken or silent stays so.
    pub fn clear_up(&self) {
        let mut inner = self.inner();
        inner.faults_left = 0;
        inner.breaks_after = None;
    }

    /// Breaks whichever channel is used after so many further writes.
    pub fn break_after(&self, writes: u64) {
        self.inner().breaks_after.get_or_insert(writes);
    }

    /// All channels of now carry nothing more, and nobody is told: a host lost its power.
    pub fn silence(&self, now: Duration) {
        for link in &self.inner().links {
            link.lock().unwrap().fall_silent(now);
        }
    }

    /// Channels of which an end is open.
    #[must_use]
    pub fn open_channels(&self) -> usize {
        let inner = self.inner();
        let open = inner
            .links
            .iter()
            .filter(|link| Arc::strong_count(link) > 1);
        open.count()
    }

    /// Moves what has arrived by now to where it can be read.
    pub(crate) fn deliver(&self, course: &Course) {
        let now = course.time();
        let mut inner = self.inner();
        if inner.arriving.iter().any(|(due, ..)| *due <= now)
            && let Some((notifier, token)) = &inner.listener
        {
            notify(notifier, *token, true, false);
        }
        inner.links.retain(|link| Arc::strong_count(link) > 1);
        for link in &inner.links {
            if link.lock().unwrap().deliver(now) {
                course.act(4);
            }
        }
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Duration> {
        let inner = self.inner();
        let arriving = inner.arriving.iter().map(|(due, ..)| *due);
        let links = inner
            .links
            .iter()
            .filter_map(|link| link.lock().unwrap().next());
        arriving.chain(links).min()
    }
}

fn notify(notifier: &Notifier, token: Token, readable: bool, writable: bool) {
    notifier.notify(Event {
        token,
        readable,
        writable,
    });
}
