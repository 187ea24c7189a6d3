//! The memory of the machine: [`memory_bytes`], [`prefer_huge_pages`].

/// Size and alignment of a huge page in bytes, on processors with pages of 4 KiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the system to use huge pages for memory that hasn't been written yet, where whole ones fit
/// into it. A device is given a few long ranges then instead of hundreds of pages, which a request
/// may not even take. A hint: systems may not heed it.
pub fn prefer_huge_pages(bytes: &mut [u8]) {
    advise(bytes);
}

#[cfg(target_os = "linux")]
fn advise(bytes: &mut [u8]) {
    let Some(whole) = bytes.get_mut(..bytes.len() - bytes.len() % HUGE_PAGE_BYTES) else {
        return;
    };
    if whole.is_empty() || !whole.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES) {
        return;
    }
    // SAFETY: the range is mapped memory that is borrowed meanwhile, and the advice leaves its
    // contents as they are.
    unsafe { libc::madvise(whole.as_mut_ptr().cast(), whole.len(), libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &mut [u8]) {}

/// Bytes of memory that the process could have at most: those of the machine, or fewer if its
/// control group may not have as many. `None` where the system doesn't tell.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    read()
}

#[cfg(target_os = "linux")]
fn read() -> Option<u64> {
    let machine = machine_bytes(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // A group may have no more than those around it.
    let group = std::path::Path::new(group(&groups).unwrap_or("/"));
    let limits = group.ancestors().filter_map(|group| {
        let folder = group.strip_prefix("/").unwrap_or(group);
        let path = std::path::Path::new("/sys/fs/cgroup").join(folder);
        let limit = std::fs::read_to_string(path.join("memory.max")).ok()?;
        // Without a limit it has the word "max".
        limit.trim().parse().ok()
    });
    Some(limits.fold(machine, u64::min))
}

#[cfg(not(target_os = "linux"))]
fn read() -> Option<u64> {
    None
}

/// The size in `/proc/meminfo`.
#[cfg(any(target_os = "linux", test))]
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The group of the unified hierarchy in `/proc/self/cgroup`.
#[cfg(any(target_os = "linux", test))]
fn group(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_machine_is_read() {
        let text = "Foo:  1 kB\nMemTotal:       16384 kB\nMemFree: 1 kB\n";
        assert_eq!(machine_bytes(text), Some(16 << 20));
        for bad in ["", "MemTotal: 5", "MemTotal: x kB", "MemTotal: -1 kB"] {
            assert_eq!(machine_bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_control_group_is_read() {
        let text = "4:memory:/old\n0::/system.slice/xdfs.service\n";
        assert_eq!(group(text), Some("/system.slice/xdfs.service"));
        assert_eq!(group("4:memory:/old\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_memory() {
        assert!(memory_bytes().unwrap() > 16 << 20);
    }
}
