//! The comparison of sources: the digests of the blocks that each of them claims.

use std::collections::BTreeMap;

use xdfs_proto::digest::FragmentState;

/// The answer of the sources about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The digest of one that is asked is still missing.
    Pending,
    /// All of them have this digest.
    Agreed(FragmentState),
    /// They differ: the groups with equal digests, the one that is believed first.
    Differ(Vec<Vec<usize>>),
    /// None of them computes digests.
    NoVoters,
}

/// The claimed digests of the blocks that are looked at.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// By block and source.
    claims: BTreeMap<u64, BTreeMap<usize, FragmentState>>,
}

impl Agreement {
    /// Adds the claim of a source.
    pub(super) fn claim(&mut self, block: u64, source: usize, state: FragmentState) {
        self.claims.entry(block).or_default().insert(source, state);
    }

    /// The verdict about a block by these sources, which are in the order of their names.
    pub(super) fn verdict(&self, block: u64, voters: &[usize]) -> Verdict {
        if voters.is_empty() {
            return Verdict::NoVoters;
        }
        let Some(claims) = self.claims.get(&block) else {
            return Verdict::Pending;
        };
        let mut groups: Vec<(FragmentState, Vec<usize>)> = Vec::new();
        for &voter in voters {
            let Some(&state) = claims.get(&voter) else {
                return Verdict::Pending;
            };
            match groups.iter_mut().find(|(of, _)| *of == state) {
                Some((_, group)) => group.push(voter),
                None => groups.push((state, vec![voter])),
            }
        }
        if let [(state, _)] = groups.as_slice() {
            return Verdict::Agreed(*state);
        }
        // The largest first. The sort is stable, so of equally large ones the one with the source
        // that is named first.
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.len()));
        Verdict::Differ(groups.into_iter().map(|(_, group)| group).collect())
    }

    /// Forgets the blocks outside of a range.
    pub(super) fn keep(&mut self, blocks: std::ops::Range<u64>) {
        self.claims.retain(|block, _| blocks.contains(block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(value: u64) -> FragmentState {
        FragmentState::Crc64Nvme(value)
    }

    fn of(claims: &[u64]) -> Agreement {
        let mut agreement = Agreement::default();
        for (source, &value) in claims.iter().enumerate() {
            agreement.claim(7, source, state(value));
        }
        agreement
    }

    #[test]
    fn all_have_to_have_answered() {
        let agreement = of(&[1, 1]);
        assert_eq!(agreement.verdict(7, &[0, 1]), Verdict::Agreed(state(1)));
        assert_eq!(agreement.verdict(7, &[0, 1, 2]), Verdict::Pending);
        assert_eq!(agreement.verdict(8, &[0]), Verdict::Pending);
        assert_eq!(agreement.verdict(7, &[]), Verdict::NoVoters);
    }

    #[test]
    fn the_more_are_believed_and_then_the_first() {
        let differ = |claims: &[u64]| {
            let voters: Vec<_> = (0..claims.len()).collect();
            match of(claims).verdict(7, &voters) {
                Verdict::Differ(groups) => groups,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(differ(&[1, 2, 2]), [vec![1, 2], vec![0]]);
        assert_eq!(differ(&[1, 2]), [vec![0], vec![1]]);
        assert_eq!(differ(&[3, 2, 1]), [vec![0], vec![1], vec![2]]);
        assert_eq!(differ(&[2, 1, 2, 1]), [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn what_is_behind_is_forgotten() {
        let mut agreement = of(&[1]);
        agreement.keep(7..8);
        assert_eq!(agreement.verdict(7, &[0]), Verdict::Agreed(state(1)));
        agreement.keep(8..20);
        assert_eq!(agreement.verdict(7, &[0]), Verdict::Pending);
    }
}
