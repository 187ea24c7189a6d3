//! Filters of tree entries: rules with the syntax and semantics of gitignore files, a list of
//! paths, and limits on files.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use xdfs_proto::{Code, Fault};

const OPERATION: &str = "read the filter rules";
/// Largest rule file, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A rule, or a file of rules. A pattern is a line of a gitignore file: `*.o` anywhere, `/a/b` from
/// the root of the tree, `d/` directories only, `**` any number of directories.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterRule {
    /// Leaves out entries that match the pattern; with a leading `!`, includes them again.
    Exclude(String),
    /// Includes entries that match the pattern and that an earlier rule leaves out.
    Include(String),
    /// The rules in a file, one per line; blank lines and lines that start with `#` are ignored.
    File(PathBuf),
}

/// Limits on regular files, beyond which they are left out; entries of other kinds have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLimits {
    /// Smallest size in bytes.
    pub size_min: Option<u64>,
    /// Largest size in bytes.
    pub size_max: Option<u64>,
    /// Shortest time since the last modification.
    pub age_min: Option<Duration>,
    /// Longest time since the last modification.
    pub age_max: Option<Duration>,
}

impl FileLimits {
    /// A text that differs if the limits do.
    fn identity(&self) -> String {
        match self {
            limits if *limits == Self::default() => String::new(),
            limits => format!("{limits:?}"),
        }
    }
}

/// The paths of a list, and the directories above them.
struct ListedPaths {
    paths: HashSet<Vec<u8>>,
    above: HashSet<Vec<u8>>,
}

impl ListedPaths {
    fn has(&self, path: &[u8], is_directory: bool) -> bool {
        upwards(path).any(|path| self.paths.contains(path))
            || is_directory && self.above.contains(path)
    }
}

/// A path, and the directories above it without the root.
pub(super) fn upwards(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| {
        let at = path.iter().rposition(|b| *b == b'/')?;
        Some(&path[..at])
    })
}

/// Selects the entries of a tree to leave out. The last matching rule decides. A directory that is
/// left out isn't listed, so nothing beneath it can be included again.
#[derive(Clone, Default)]
pub struct Filter {
    rules: Option<Arc<Gitignore>>,
    only: Option<Arc<ListedPaths>>,
    limits: FileLimits,
    /// The time that ages count from, in nanoseconds since 1970.
    now_ns: i128,
    /// A digest of all of it; `None` if it leaves out nothing.
    identity: Option<[u8; 32]>,
}

impl Filter {
    /// A filter with these rules, in this order.
    ///
    /// # Errors
    /// A pattern is invalid, or a file can't be read. The fault names the file and the line.
    pub fn new(rules: &[FilterRule]) -> Result<Self, Fault> {
        let mut builder = GitignoreBuilder::new("");
        builder.allow_unclosed_class(false);
        let mut identity = blake3::Hasher::new();
        for rule in rules {
            let line = match rule {
                FilterRule::Exclude(pattern) => add(&mut builder, "", pattern)?,
                FilterRule::Include(pattern) => add(&mut builder, "!", pattern)?,
                FilterRule::File(path) => add_file(&mut builder, path)?,
            };
            identity.update(&line);
            // No pattern contains a line break.
            identity.update(b"\n");
        }
        let rules = builder.build().map_err(|error| bad(&error.to_string()))?;
        let rules = (!rules.is_empty()).then(|| Arc::new(rules));
        Ok(Self {
            identity: rules.as_ref().map(|_| identity.finalize().into()),
            rules,
            ..Self::default()
        })
    }

    /// The filter that also leaves out everything but these entries, relative to the root of the
    /// tree, what is in them, and the directories above them.
    #[must_use]
    pub fn with_only(mut self, paths: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let paths: HashSet<Vec<u8>> = paths.into_iter().collect();
        let above = paths.iter().flat_map(|path| upwards(path).skip(1));
        let above = above.map(<[u8]>::to_vec).collect();
        // Independent of the order: a sum of the digests.
        let mut sum = [0_u8; 32];
        for path in &paths {
            let digest: [u8; 32] = blake3::hash(path).into();
            for (sum, byte) in sum.iter_mut().zip(digest) {
                *sum = sum.wrapping_add(byte);
            }
        }
        self.identify(b"only", &sum);
        self.only = Some(Arc::new(ListedPaths { paths, above }));
        self
    }

    /// The filter that also leaves out files beyond these limits. Ages count from now.
    #[must_use]
    pub fn with_limits(mut self, limits: FileLimits) -> Self {
        if limits != FileLimits::default() {
            self.identify(b"limits", limits.identity().as_bytes());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.now_ns = now.map_or(0, |now| i128::try_from(now.as_nanos()).unwrap_or(i128::MAX));
        self.limits = limits;
        self
    }

    fn identify(&mut self, what: &[u8], digest: &[u8]) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.identity.unwrap_or_default());
        hasher.update(what).update(digest);
        self.identity = Some(hasher.finalize().into());
    }

    /// A digest of the filter; empty if it leaves out nothing.
    pub(super) fn identity(&self) -> &[u8] {
        self.identity.as_ref().map_or(&[], |identity| identity)
    }

    /// Whether there are limits on files.
    pub(super) fn has_limits(&self) -> bool {
        self.limits != FileLimits::default()
    }

    /// Whether there are limits on ages: they leave out files whose age isn't known.
    pub(crate) fn limits_ages(&self) -> bool {
        self.limits.age_min.is_some() || self.limits.age_max.is_some()
    }

    /// Whether the limits leave out a regular file of this size in bytes and modification time in
    /// nanoseconds since 1970.
    #[must_use]
    pub fn leaves_out_file(&self, size: u64, mtime_ns: i64) -> bool {
        let limits = &self.limits;
        let age_ns = self.now_ns.saturating_sub(i128::from(mtime_ns));
        let is_below = |age: Duration| i128::try_from(age.as_nanos()).map_or(true, |a| age_ns < a);
        let is_above = |age: Duration| i128::try_from(age.as_nanos()).is_ok_and(|a| age_ns > a);
        limits.size_min.is_some_and(|min| size < min)
            || limits.size_max.is_some_and(|max| size > max)
            || limits.age_min.is_some_and(is_below)
            || limits.age_max.is_some_and(is_above)
    }

    /// Whether rules or list leave out the entry at `path`, relative to the root of the tree. The
    /// directories above it aren't considered: the contents of an excluded directory are never
    /// passed to this.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        if self
            .only
            .as_ref()
            .is_some_and(|only| !only.has(path, is_directory))
        {
            return true;
        }
        let Some(rules) = &self.rules else {
            return false;
        };
        // A name that is invalid on this system is matched lossily.
        let path = xdfs_sys::fs::path_from_bytes(path)
            .unwrap_or_else(|_| String::from_utf8_lossy(path).into_owned().into());
        rules.matched(&path, is_directory).is_ignore()
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.as_ref().map_or(0, |rules| rules.len());
        let paths = self.only.as_ref().map(|only| only.paths.len());
        f.debug_struct("Filter")
            .field("rules", &rules)
            .field("paths", &paths)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn bad(cause: &str) -> Fault {
    Fault::new(Code::InvalidArgument, OPERATION, cause)
        .hint("patterns are written as in a gitignore file")
}

/// Adds a single pattern, and returns its line.
fn add(builder: &mut GitignoreBuilder, sign: &str, pattern: &str) -> Result<Vec<u8>, Fault> {
    let is_nothing = pattern.trim_end().is_empty() || pattern.starts_with('#');
    let is_twice = !sign.is_empty() && pattern.starts_with('!');
    if is_nothing || is_twice || pattern.contains('\n') {
        return Err(bad(&format!(
            "'{}' is not a valid pattern",
            pattern.escape_default()
        )));
    }
    let line = format!("{sign}{pattern}");
    let added = builder.add_line(None, &line);
    added.map_err(|error| bad(&error.to_string()))?;
    Ok(line.into_bytes())
}

/// Adds the rules of a file, and returns its bytes.
fn add_file(builder: &mut GitignoreBuilder, path: &Path) -> Result<Vec<u8>, Fault> {
    let name = path.as_os_str().as_encoded_bytes();
    let io = |error: &std::io::Error| Fault::from_io(OPERATION, name, error);
    let length = std::fs::metadata(path).map_err(|error| io(&error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(bad(&format!("it is longer than {FILE_BYTES_MAX} bytes")).path(name));
    }
    let bytes = std::fs::read(path).map_err(|error| io(&error))?;
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    for (number, line) in (1..).zip(text.split(|b| *b == b'\n')) {
        let at = |cause: &str| bad(&format!("line {number}: {cause}")).path(name);
        let line = str::from_utf8(line).map_err(|_| at("it is not UTF-8"))?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        let added = builder.add_line(None, line);
        added.map_err(|error| at(&error.to_string()))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        let rules = rules.iter().map(|r| FilterRule::Exclude((*r).into()));
        Filter::new(&rules.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn every_kind_of_rule() {
        let rules = filter(&[
            "*.o", "!keep.o", "/top", "d/", "a/**/z", "/in/x?", "[ab]1", "\\#h",
        ]);
        for (path, is_directory, out) in [
            ("x.o", false, true),
            ("deep/er/x.o", false, true),
            ("keep.o", false, false),
            ("deep/keep.o", false, false),
            ("top", false, true),
            ("deep/top", false, false),
            ("d", true, true),
            ("deep/d", true, true),
            ("d", false, false),
            ("a/z", false, true),
            ("a/b/c/z", false, true),
            ("b/z", false, false),
            ("in/xy", false, true),
            ("in/x", false, false),
            ("q/in/xy", false, false),
            ("a1", false, true),
            ("c1", false, false),
            ("#h", false, true),
        ] {
            assert_eq!(
                rules.leaves_out(path.as_bytes(), is_directory),
                out,
                "{path}"
            );
        }
        assert!(filter(&["*.o"]).leaves_out(b"\xff\xfe.o", false));
        assert!(!Filter::default().leaves_out(b"x", false));
    }

    #[test]
    fn the_last_rule_counts() {
        let rules = [
            FilterRule::Exclude("*.o".into()),
            FilterRule::Include("a.o".into()),
            FilterRule::Exclude("/a.o".into()),
        ];
        let rules = Filter::new(&rules).unwrap();
        assert!(rules.leaves_out(b"a.o", false));
        assert!(!rules.leaves_out(b"d/a.o", false));
    }

    #[test]
    fn only_what_is_listed() {
        let listed = |paths: &[&str]| {
            let paths = paths.iter().map(|path| path.as_bytes().to_vec());
            filter(&["*.o"]).with_only(paths)
        };
        let only = listed(&["a/b", "c"]);
        for (path, is_directory, out) in [
            ("a", true, false),
            ("a", false, true),
            ("a/b", false, false),
            ("a/b", true, false),
            ("a/b/deep/file", false, false),
            ("a/b/deep/file.o", false, true),
            ("a/bc", false, true),
            ("c", false, false),
            ("c/d", true, false),
            ("d", true, true),
            ("b", false, true),
        ] {
            let found = only.leaves_out(path.as_bytes(), is_directory);
            assert_eq!(found, out, "{path}");
        }
        assert_eq!(only.identity(), listed(&["c", "a/b"]).identity());
        assert_ne!(only.identity(), listed(&["c", "a"]).identity());
        assert_ne!(only.identity(), filter(&["*.o"]).identity());
        assert!(listed(&[]).leaves_out(b"c", false));
    }

    #[test]
    fn limits_on_files() {
        const SECOND: u64 = 1_000_000_000;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let before = |seconds: u64| i64::try_from(now.as_secs() - seconds).unwrap() * SECOND as i64;
        let age = |seconds| Some(Duration::from_secs(seconds));
        let limits = FileLimits {
            size_min: Some(10),
            size_max: Some(20),
            age_min: age(1000),
            age_max: age(100_000),
        };
        let filter = Filter::default().with_limits(limits);
        for (size, seconds, out) in [
            (10, 5000, false),
            (20, 5000, false),
            (9, 5000, true),
            (21, 5000, true),
            (15, 900, true),
            (15, 99_000, false),
            (15, 101_000, true),
        ] {
            assert_eq!(
                filter.leaves_out_file(size, before(seconds)),
                out,
                "{size} {seconds}"
            );
        }
        // Times in the future are of negative age.
        assert!(filter.leaves_out_file(15, i64::MAX));
        assert!(!Filter::default().leaves_out_file(0, i64::MAX));
        assert!(
            Filter::default()
                .with_limits(FileLimits::default())
                .identity()
                .is_empty()
        );
        let other = FileLimits {
            size_min: Some(11),
            ..limits
        };
        assert_ne!(
            filter.identity(),
            Filter::default().with_limits(other).identity()
        );
    }

    /// Rules of files take effect at the position of the file.
    #[test]
    fn files_count_in_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        std::fs::write(&path, "*.o\n").unwrap();
        let file = FilterRule::File(path);
        let keep = FilterRule::Include("a.o".into());
        let rules = Filter::new(&[file.clone(), keep.clone()]).unwrap();
        assert!(!rules.leaves_out(b"a.o", false) && rules.leaves_out(b"b.o", false));
        let turned = Filter::new(&[keep, file]).unwrap();
        assert!(turned.leaves_out(b"a.o", false));
        assert_ne!(rules.identity(), turned.identity());
    }

    /// A journal belongs to the current rules, and not to earlier contents of a rule file.
    #[test]
    fn a_file_that_changed_makes_another_filter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        let filter = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Filter::new(&[FilterRule::File(path.clone())]).unwrap()
        };
        let first = filter("*.o\n");
        assert_ne!(first.identity(), filter("*.a\n").identity());
        assert_eq!(first.identity(), filter("*.o\n").identity());
    }

    #[test]
    fn bad_rules_name_file_and_line() {
        for bad in ["[a", "", " ", "#x", "a\nb"] {
            let rule = FilterRule::Exclude(bad.into());
            let fault = Filter::new(&[rule]).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument, "{bad}");
        }
        assert!(Filter::new(&[FilterRule::Include("!x".into())]).is_err());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        std::fs::write(&path, "# words\r\n\r\n*.o\r\n[z-a]\n").unwrap();
        let fault = Filter::new(&[FilterRule::File(path.clone())]).unwrap_err();
        assert_eq!(fault.path, path.as_os_str().as_encoded_bytes());
        assert!(fault.cause.starts_with("line 4:"), "{fault}");
        std::fs::write(&path, "\u{feff}*.o\r\n!a.o\n").unwrap();
        let rules = Filter::new(&[FilterRule::File(path)]).unwrap();
        assert!(rules.leaves_out(b"b.o", false) && !rules.leaves_out(b"a.o", false));
        let missing = folder.path().join("missing");
        let fault = Filter::new(&[FilterRule::File(missing)]).unwrap_err();
        assert_eq!(fault.code, Code::NotFound);
    }
}
