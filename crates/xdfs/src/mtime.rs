//! Modification times in the resolution of file systems.

use xdfs_proto::{Code, Fault};

const SECOND_NS: i64 = 1_000_000_000;

/// Whether a time is at an end of the range in nanoseconds, where stores cut off those beyond it.
pub(crate) fn is_cut(time_ns: Option<i64>) -> bool {
    matches!(time_ns, Some(i64::MIN | i64::MAX))
}

/// The warning that so many files have another time than their sources
/// ([`TransferResult::has_cut_time`](crate::TransferResult::has_cut_time)); `None` for none.
#[must_use]
pub fn time_warning(files: u64) -> Option<Fault> {
    let files = match files {
        0 => return None,
        1 => "1 file".to_owned(),
        number => format!("{number} files"),
    };
    let cause = format!("the time of {files} was not kept: it is before 1677 or after 2262");
    Some(Fault::new(Code::InvalidArgument, "", cause))
}

/// Whether a time is in whole seconds, the resolution of some file systems.
pub(crate) fn is_coarse(time_ns: i64) -> bool {
    time_ns % SECOND_NS == 0
}

/// Whether the time `found` may be the stored time `given`. Some file systems truncate times to
/// 100 ns, a microsecond, a second, or two seconds.
pub(crate) fn is_same_time(found: i64, given: i64) -> bool {
    let cut = |to: i64| given.checked_sub(given.rem_euclid(to));
    let cuts = [1, 100, 1000, SECOND_NS, 2 * SECOND_NS];
    cuts.map(cut).contains(&Some(found))
}

/// Whether a target's time equals the source's, as far as its resolution allows: the target may
/// have truncated it. Truncation to two seconds isn't considered, so that a file that changed a
/// moment later is not missed.
pub(crate) fn is_equal_or_cut(source: i64, target: i64) -> bool {
    let cut = |unit: i64| source.checked_sub(source.rem_euclid(unit)) == Some(target);
    source == target || [100, 1_000, 1_000_000, 1_000_000_000].into_iter().any(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_same_to_the_nanosecond_or_cut_to_seconds() {
        let given = 7 * SECOND_NS + 5;
        for found in [given, 7 * SECOND_NS, 6 * SECOND_NS] {
            assert!(is_same_time(found, given), "{found}");
        }
        for found in [
            given - 1,
            given + 1,
            5 * SECOND_NS,
            8 * SECOND_NS,
            6 * SECOND_NS + 5,
        ] {
            assert!(!is_same_time(found, given), "{found}");
        }
        // A time in whole seconds isn't truncated.
        assert!(!is_same_time(8 * SECOND_NS, 9 * SECOND_NS + SECOND_NS));
        assert!(is_same_time(-2 * SECOND_NS, -SECOND_NS - 1));
        assert!(!is_same_time(0, -1) && !is_same_time(0, i64::MIN));
    }
}
