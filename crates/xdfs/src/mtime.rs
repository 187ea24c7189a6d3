//! Times of changes, as file systems keep them.

const SECOND_NS: i64 = 1_000_000_000;

/// Whether a time has no part of a second: some file systems keep none.
pub(crate) fn is_coarse(time_ns: i64) -> bool {
    time_ns % SECOND_NS == 0
}

/// Whether a time that was found is the one that was given. Some file systems cut it to 100 ns, to
/// a microsecond, to a second, or to two.
pub(crate) fn is_same_time(found: i64, given: i64) -> bool {
    let cut = |to: i64| given.checked_sub(given.rem_euclid(to));
    let cuts = [1, 100, 1000, SECOND_NS, 2 * SECOND_NS];
    cuts.map(cut).contains(&Some(found))
}

/// Whether a target may have been given the time of a source, as comparisons see it: a target that
/// keeps less than nanoseconds cuts the rest off. Two seconds are not taken for one here, so that a
/// file that changed a moment later is not left out.
pub(crate) fn is_equal_or_cut(source: i64, target: i64) -> bool {
    let cut =
        |unit: i64| target.rem_euclid(unit) == 0 && source - source.rem_euclid(unit) == target;
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
        // Whole seconds that are wanted are found as such.
        assert!(!is_same_time(8 * SECOND_NS, 9 * SECOND_NS + SECOND_NS));
        assert!(is_same_time(-2 * SECOND_NS, -SECOND_NS - 1));
        assert!(!is_same_time(0, -1) && !is_same_time(0, i64::MIN));
    }
}
