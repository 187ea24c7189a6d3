//! The processor: [`thread_time`], [`second_level_cache_bytes`].

use std::time::Duration;

/// The size in bytes of the second-level cache. `None` where the system doesn't tell.
#[must_use]
pub fn second_level_cache_bytes() -> Option<usize> {
    // Files that Linux has.
    let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = caches.filter_map(|cache| {
        let read = |name| std::fs::read_to_string(cache.as_ref().ok()?.path().join(name)).ok();
        match read("level")?.trim() {
            "2" => cache_bytes(&read("size")?),
            _ => None,
        }
    });
    sizes.max()
}

/// The size that is written as `512K`.
fn cache_bytes(text: &str) -> Option<usize> {
    let kib: usize = text.trim().strip_suffix('K')?.parse().ok()?;
    kib.checked_mul(1024)
}

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
    fn sizes_of_caches_are_read() {
        assert_eq!(cache_bytes("512K\n"), Some(512 << 10));
        for bad in ["", "K", "512", "-1K", "99999999999999999999K"] {
            assert_eq!(cache_bytes(bad), None, "{bad}");
        }
        if let Some(bytes) = second_level_cache_bytes() {
            assert!((64 << 10..1 << 30).contains(&bytes), "{bytes}");
        }
    }

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
