//! The rate of a session that yields to others on its path (`--nice`).
//!
//! Where packets wait in a queue of the path, others want its bandwidth, or this session alone has
//! filled it: then the rate falls. It grows while the queue is nearly empty, as in LEDBAT
//! (RFC 6817). So others get what they want, and the session gets what they leave. Times and bytes
//! are arguments.

use std::time::Duration;

/// The rate in bytes per second with which a session begins, and the least one.
const FIRST: f64 = 1_000_000.0;
const LEAST: f64 = 50_000.0;
/// Delay in the queue above which the rate falls: this share of the shortest round-trip time, at
/// least and at most.
const DELAY_SHARE: f64 = 0.1;
const DELAY_MIN: Duration = Duration::from_millis(12);
const DELAY_MAX: Duration = Duration::from_millis(50);
/// Share of the bytes sent again above which the rate falls, since a short queue drops packets
/// before they have waited for long.
const LOSS: f64 = 0.03;
/// Factors by which the rate falls, falls where the delay is three times as long as wanted, and
/// grows while it is used.
const FALL: f64 = 0.7;
const FALL_FAST: f64 = 0.5;
const GROWTH: f64 = 1.2;
/// Share of the rate that has to be used for it to grow.
const USED: f64 = 0.7;
/// Interval of the steps, at least; otherwise two round trips, to see what a step has changed.
const INTERVAL: Duration = Duration::from_millis(200);

/// What a session knows of its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Time since the session began.
    pub(super) now: Duration,
    /// Payload bytes moved so far, in both directions.
    pub(super) bytes: u64,
    /// The shortest round-trip time.
    pub(super) round_trip: Duration,
    /// How much longer round trips take at present. `None` if none was measured lately, as where
    /// this side sends next to nothing.
    pub(super) delay: Option<Duration>,
    /// Share of the bytes sent lately that were sent again.
    pub(super) loss: f64,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Yielding {
    rate: f64,
    /// The time and the bytes of the last step.
    last: Option<(Duration, u64)>,
}

impl Default for Yielding {
    fn default() -> Self {
        Self {
            rate: FIRST,
            last: None,
        }
    }
}

impl Yielding {
    /// The rate to keep to, in bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Takes a step if it is due. Returns the rate if it is new.
    pub(super) fn step(&mut self, view: View) -> Option<u64> {
        let Some((at, before)) = self.last else {
            self.last = Some((view.now, view.bytes));
            return Some(self.rate());
        };
        let time = view.now.saturating_sub(at);
        let delay = view.delay.unwrap_or_default();
        if time < INTERVAL.max(2 * (view.round_trip + delay)) {
            return None;
        }
        self.last = Some((view.now, view.bytes));
        let moved = view.bytes.saturating_sub(before) as f64 / time.as_secs_f64();
        let wanted = view.round_trip.mul_f64(DELAY_SHARE);
        let wanted = wanted.clamp(DELAY_MIN, DELAY_MAX);
        let rate = self.rate;
        if delay > wanted || view.loss > LOSS {
            let fall = match delay > 3 * wanted {
                true => FALL_FAST,
                false => FALL,
            };
            self.rate = (rate.min(moved) * fall).max(LEAST);
        } else if delay <= wanted / 2 && moved >= rate * USED {
            self.rate = rate * GROWTH;
        }
        (self.rate != rate).then(|| self.rate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(40);
    /// Bytes per second that the path takes.
    const PATH: f64 = 10e6;

    /// Moves data for `seconds` over a path of which others take what `others` says at a time, in
    /// bytes per second. Returns the rates of each second.
    fn run(seconds: u32, others: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut yielding = Yielding::default();
        let (mut rates, mut queue, mut bytes, mut before) = (Vec::new(), 0.0_f64, 0.0, 0.0);
        for step in 1..=100 * seconds {
            let now = f64::from(step) / 100.0;
            let (own, others) = (yielding.rate() as f64, others(now));
            queue = (queue + (own + others - PATH) / 100.0).clamp(0.0, PATH / 10.0);
            let share = (PATH / (own + others)).min(1.0);
            bytes += own * share / 100.0;
            yielding.step(View {
                now: Duration::from_secs_f64(now),
                bytes: bytes as u64,
                round_trip: ROUND_TRIP,
                delay: Some(Duration::from_secs_f64(queue / PATH)),
                loss: 0.0,
            });
            if step % 100 == 0 {
                rates.push(bytes - before);
                before = bytes;
            }
        }
        rates
    }

    #[test]
    fn alone_it_fills_most_of_the_path() {
        let rates = run(30, |_| 0.0);
        let late = &rates[15..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert!(mean > 0.8 * PATH, "{rates:?}");
    }

    #[test]
    fn others_get_what_they_want_and_it_gets_what_they_leave() {
        // They want all of it from the 10th to the 20th second, and a half afterwards.
        let rates = run(40, |s| match s {
            s if s < 10.0 => 0.0,
            s if s < 20.0 => PATH,
            _ => PATH / 2.0,
        });
        assert!(rates[9] > 0.6 * PATH, "{rates:?}");
        assert!(
            rates[14..20].iter().all(|rate| *rate < 0.1 * PATH),
            "{rates:?}"
        );
        let late = &rates[30..];
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert!((0.35 * PATH..0.55 * PATH).contains(&mean), "{rates:?}");
    }

    #[test]
    fn losses_count_where_the_queue_is_short() {
        let mut yielding = Yielding::default();
        let view = |ms: u64, loss| View {
            now: Duration::from_millis(ms),
            bytes: ms * 1000,
            round_trip: ROUND_TRIP,
            delay: None,
            loss,
        };
        assert_eq!(yielding.step(view(0, 0.0)), Some(1_000_000));
        assert_eq!(yielding.step(view(500, 0.0)), Some(1_200_000));
        assert_eq!(yielding.step(view(1000, 0.1)), Some(700_000));
        // Not more than is used: the source may be slow.
        let rate = yielding.rate();
        for seconds in 2..20 {
            yielding.step(View {
                bytes: 1_000_000,
                ..view(1000 * seconds, 0.0)
            });
        }
        assert_eq!(yielding.rate(), rate);
    }

    #[test]
    fn it_never_stands_still() {
        let rates = run(30, |_| 2.0 * PATH);
        assert!(rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
    }
}
