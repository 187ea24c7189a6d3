//! Processor time: [`thread_time`].

use std::time::Duration;

/// The processor time that the calling thread has had since it began. `None` where the system
/// doesn't tell.
#[must_use]
pub fn thread_time() -> Option<Duration> {
    read()
}

#[cfg(target_os = "linux")]
fn read() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).ok()
}

#[cfg(not(target_os = "linux"))]
fn read() -> Option<Duration> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_sleeps_has_none() {
        let (began, slept) = (thread_time().unwrap(), Instant::now());
        std::thread::sleep(Duration::from_millis(200));
        let used = thread_time().unwrap().checked_sub(began).unwrap();
        assert!(used < slept.elapsed() / 2, "{used:?}");
    }

    #[test]
    fn a_thread_that_works_has_some() {
        let began = thread_time().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while thread_time().unwrap() < began + Duration::from_millis(20) {
            assert!(Instant::now() < deadline, "no time is counted");
        }
    }
}
