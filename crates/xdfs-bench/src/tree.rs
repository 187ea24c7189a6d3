//! Trees of small files: their shapes, making them, and checking copies of them.
//!
//! Sizes and content follow from a fixed seed, so every run on every machine moves the same tree.
//! Called by `plan` for what a tree holds, and by `session`.

use std::{
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
};

use crate::{content, options::Group};

/// Where sizes and content begin.
const SEED: u64 = 0x5eed_0f7e_5eed_0f7e;
/// How many files of a copy are compared with their sources.
const SAMPLE_FILES: u32 = 64;
/// How often sizes are scaled towards their sum; a few times would do.
const SCALINGS: u32 = 50;
/// How much smaller the trees of a quick run are.
const QUICK_DIVISOR: u32 = 100;

/// What a tree holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    /// Regular files.
    pub(crate) files: u32,
    /// Directories beneath the root, all side by side.
    folders: u32,
    /// Size of the smallest file in bytes.
    least: u64,
    /// Size of the largest file in bytes.
    most: u64,
    /// Sum of all sizes that is aimed at, in bytes.
    aim: u64,
}

impl Shape {
    /// The tree of a group; none where it moves something else.
    pub(crate) fn of(group: Group, quick: bool) -> Option<Self> {
        let (files, folders, least, most, aim) = match group {
            Group::TreeA => (1000, 100, 1 << 10, 512 << 10, 80_000_000),
            Group::TreeB | Group::TreeWan | Group::TreeWanNarrow => {
                (2874, 56, 0, 258 << 10, 147_000_000)
            }
            Group::TreeC => (100_000, 1000, 4096, 4096, 409_600_000),
            Group::TreeDisk => (2000, 20, 2_000_000, 2_000_000, 4_000_000_000),
            Group::TreeEmpty => (1_000_000, 1000, 0, 0, 0),
            _ => return None,
        };
        let divisor = match (quick, group) {
            (false, _) => 1,
            (true, Group::TreeEmpty) => QUICK_DIVISOR * 10,
            (true, _) => QUICK_DIVISOR,
        };
        Some(Self {
            files: files / divisor,
            folders: (folders / divisor).max(2),
            least,
            most,
            aim: aim / u64::from(divisor),
        })
    }

    /// The size of every file in bytes.
    pub(crate) fn sizes(self) -> Vec<u64> {
        let files = usize::try_from(self.files).unwrap_or_default();
        if self.least == self.most {
            return vec![self.least; files];
        }
        // Many small ones and few large ones, as in a tree of sources.
        let mean = self.aim as f64 / f64::from(self.files);
        let mut state = SEED;
        let mut sizes: Vec<f64> = (0..files)
            .map(|_| {
                let drawn = (content::next(&mut state) >> 11) as f64 / (1_u64 << 53) as f64;
                -mean * (1.0 - drawn).ln()
            })
            .collect();
        for _ in 0..SCALINGS {
            let factor = self.aim as f64 / sizes.iter().sum::<f64>();
            for size in &mut sizes {
                *size = (*size * factor).clamp(self.least as f64, self.most as f64);
            }
        }
        let mut sizes: Vec<u64> = sizes.iter().map(|size| size.round() as u64).collect();
        for (size, bound) in sizes.iter_mut().zip([self.most, self.least]) {
            *size = bound;
        }
        sizes
    }

    /// Bytes of all files.
    pub(crate) fn bytes(self) -> u64 {
        self.sizes().iter().sum()
    }

    /// Where a file is beneath the root.
    fn name(self, index: u32) -> PathBuf {
        PathBuf::from(format!("d{:04}", index % self.folders)).join(format!("f{index:06}"))
    }

    /// Makes the tree in the folder `root`.
    pub(crate) fn make(self, root: &Path) -> io::Result<()> {
        for folder in 0..self.folders {
            fs::create_dir_all(root.join(format!("d{folder:04}")))?;
        }
        let most = usize::try_from(self.most).map_err(io::Error::other)?;
        let mut bytes = vec![0; most.next_multiple_of(8)];
        let mut state = SEED;
        for (index, size) in (0..).zip(self.sizes()) {
            let size = usize::try_from(size).map_err(io::Error::other)?;
            content::fill_random(&mut bytes[..size.next_multiple_of(8)], &mut state);
            fs::write(root.join(self.name(index)), &bytes[..size])?;
        }
        Ok(())
    }

    /// Checks a copy of the tree: the number of files and directories, the bytes, and the content
    /// of a sample. The error is one line for the report.
    pub(crate) fn check(self, source: &Path, target: &Path) -> Result<(), String> {
        let failed = |error: io::Error| format!("looking at the copy: {error}");
        let found = count(target).map_err(failed)?;
        let wanted = TreeTotals {
            files: u64::from(self.files),
            folders: u64::from(self.folders),
            others: 0,
            bytes: self.bytes(),
        };
        if found != wanted {
            return Err(format!("the copy has {found:?} instead of {wanted:?}"));
        }
        for index in sample(self.files) {
            let name = self.name(index);
            let is_same = content::same(&source.join(&name), &target.join(&name))
                .map_err(|error| format!("comparing {}: {error}", name.display()))?;
            if !is_same {
                return Err(format!("{} differs from its source", name.display()));
            }
        }
        Ok(())
    }
}

/// Files spread over all, the first and the last among them.
fn sample(files: u32) -> impl Iterator<Item = u32> {
    let count = files.min(SAMPLE_FILES);
    let place = move |number: u32| {
        let far = u64::from(number) * u64::from(files.saturating_sub(1));
        far / u64::from(count.max(2) - 1)
    };
    (0..count).filter_map(move |number| u32::try_from(place(number)).ok())
}

/// What is beneath a folder.
#[derive(Debug, Default, Eq, PartialEq)]
struct TreeTotals {
    files: u64,
    folders: u64,
    /// What is neither.
    others: u64,
    bytes: u64,
}

fn count(root: &Path) -> io::Result<TreeTotals> {
    let mut found = TreeTotals::default();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry: DirEntry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                found.folders += 1;
                folders.push(entry.path());
            } else if kind.is_file() {
                found.files += 1;
                found.bytes += entry.metadata()?.len();
            } else {
                found.others += 1;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREES: [Group; 7] = [
        Group::TreeA,
        Group::TreeB,
        Group::TreeC,
        Group::TreeDisk,
        Group::TreeEmpty,
        Group::TreeWan,
        Group::TreeWanNarrow,
    ];

    #[test]
    fn sizes_keep_their_bounds_and_sums() {
        for (group, files, folders, least, most, total) in [
            (Group::TreeA, 1000, 100, 1024, 524_288, 80_000_000_u64),
            (Group::TreeB, 2874, 56, 0, 264_192, 147_000_000),
            (Group::TreeC, 100_000, 1000, 4096, 4096, 409_600_000),
            (
                Group::TreeDisk,
                2000,
                20,
                2_000_000,
                2_000_000,
                4_000_000_000,
            ),
            (Group::TreeEmpty, 1_000_000, 1000, 0, 0, 0),
        ] {
            let shape = Shape::of(group, false).unwrap();
            let sizes = shape.sizes();
            assert_eq!((sizes.len(), shape.folders), (files, folders), "{group:?}");
            assert_eq!(sizes.iter().min(), Some(&least), "{group:?}");
            assert_eq!(sizes.iter().max(), Some(&most), "{group:?}");
            let off = shape.bytes().abs_diff(total);
            assert!(off * 50 <= total, "{group:?}: {} bytes", shape.bytes());
            assert_eq!(sizes, shape.sizes(), "the same every time");
        }
        assert_eq!(Shape::of(Group::Shm, false), None);
    }

    #[test]
    fn quick_trees_are_small() {
        for group in TREES {
            let (quick, whole) = (Shape::of(group, true), Shape::of(group, false));
            assert!(
                quick.unwrap().bytes() * 20 <= whole.unwrap().bytes().max(1)
                    || quick.unwrap().most == 0
            );
            assert!(quick.unwrap().files <= 10_000);
        }
    }

    #[test]
    fn what_is_wrong_with_a_copy_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape::of(Group::TreeA, true).unwrap();
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        shape.make(&source).unwrap();
        assert!(shape.check(&source, &target).is_err(), "no copy");
        shape.make(&target).unwrap();
        shape.check(&source, &target).unwrap();
        let name = target.join(shape.name(shape.files - 1));
        let mut bytes = fs::read(&name).unwrap();
        let last = bytes.last_mut().unwrap();
        *last ^= 1;
        fs::write(&name, &bytes).unwrap();
        let error = shape.check(&source, &target).unwrap_err();
        assert!(error.contains("differs"), "{error}");
        bytes.pop();
        fs::write(&name, &bytes).unwrap();
        let error = shape.check(&source, &target).unwrap_err();
        assert!(error.contains("instead of"), "{error}");
        fs::remove_file(&name).unwrap();
        assert!(shape.check(&source, &target).is_err());
    }

    #[test]
    fn samples_reach_from_the_first_to_the_last() {
        for files in [1, 2, 63, 64, 65, 1_000_000] {
            let sample: Vec<u32> = sample(files).collect();
            assert_eq!(sample.first(), Some(&0));
            assert!(sample.iter().all(|index| *index < files));
            if files > 1 {
                assert_eq!(sample.last(), Some(&(files - 1)));
            }
        }
        assert_eq!(sample(0).count(), 0);
    }
}
