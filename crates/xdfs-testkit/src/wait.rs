//! Waiting for a fact that another thread or process brings about.

use std::thread;
use std::time::{Duration, Instant};

/// Asks `fact` until it holds or `patience` is over, and says whether it held. It is asked at
/// least once, also with no patience at all.
#[must_use = "a fact that never came is a failed test"]
pub fn until(patience: Duration, mut fact: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if fact() {
            return true;
        }
        if start.elapsed() >= patience {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_comes_is_seen() {
        let mut asked = 0;
        assert!(until(Duration::from_secs(20), || {
            asked += 1;
            asked == 3
        }));
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_fact_that_never_comes_ends_the_wait() {
        assert!(!until(Duration::from_millis(10), || false));
    }

    #[test]
    fn without_patience_it_is_asked_once() {
        assert!(until(Duration::ZERO, || true));
    }
}
