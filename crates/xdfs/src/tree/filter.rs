//! Filters of tree entries: rules with the syntax and semantics of gitignore files, a list of
//! paths, and limits on files.

mod text;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use xdfs_proto::{Code, Fault};
use xdfs_store::PathPattern;

const OPERATION: &str = "read the filter rules";
/// Largest rule file, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A rule, or a file of rules. A pattern is a line of a gitignore file: `*.o` anywhere, `/a/b` from
/// the root of the tree, `d/` directories only, `**` any number of directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FilterRule {
    /// Leaves out entries that match the pattern; with a leading `!`, includes them again.
    Exclude(String),
    /// Includes entries that match the pattern and that an earlier rule leaves out.
    Include(String),
    /// The rules in a file, one per line; blank lines and lines that start with `#` are ignored.
    #[serde(skip)]
    File(PathBuf),
    /// The rules in a text, as in such a file.
    Lines(#[serde(with = "crate::text")] Vec<u8>),
}

/// Limits on regular files, beyond which they are left out; entries of other kinds have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileLimits {
    /// Smallest size in bytes.
    pub size_min: Option<u64>,
    /// Largest size in bytes.
    pub size_max: Option<u64>,
    /// Shortest time since the last modification.
    #[serde(with = "crate::text")]
    pub age_min: Option<Duration>,
    /// Longest time since the last modification.
    #[serde(with = "crate::text")]
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
    /// Digests of the directories above them: their names would take the square of the space.
    above: HashSet<blake3::Hash>,
    /// A digest of the paths, independent of their order.
    digest: [u8; 32],
}

impl ListedPaths {
    fn has(&self, path: &[u8], is_directory: bool) -> bool {
        upwards(path).any(|path| self.paths.contains(path))
            || is_directory && self.above.contains(&blake3::hash(path))
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
///
/// Its text form has the rules of files themselves, so that it doesn't change with the files. Its
/// ages count from the time at which the text is read.
#[derive(Clone, Default)]
pub struct Filter {
    rules: Option<Arc<[Rule]>>,
    /// The rules as they were written, those of files as [`FilterRule::Lines`].
    written: Arc<[FilterRule]>,
    /// A digest of the rules.
    rules_digest: Option<[u8; 32]>,
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
    /// A pattern of its own can match nothing, or a file can't be read.
    pub fn new(rules: &[FilterRule]) -> Result<Self, Fault> {
        let mut parsed = Vec::new();
        let mut written = Vec::new();
        let mut digest = blake3::Hasher::new();
        for rule in rules {
            let rule = match rule {
                FilterRule::File(path) => FilterRule::Lines(read_file(path)?),
                rule => rule.clone(),
            };
            match &rule {
                FilterRule::Exclude(pattern) => digest.update(&add(&mut parsed, "", pattern)?),
                FilterRule::Include(pattern) => digest.update(&add(&mut parsed, "!", pattern)?),
                FilterRule::Lines(text) => digest.update(add_lines(&mut parsed, text)),
                // It was read.
                FilterRule::File(_) => &mut digest,
            };
            // No pattern contains a line break.
            digest.update(b"\n");
            written.push(rule);
        }
        let rules = (!parsed.is_empty()).then(|| Arc::from(parsed));
        let filter = Self {
            rules_digest: rules.as_ref().map(|_| digest.finalize().into()),
            rules,
            written: written.into(),
            ..Self::default()
        };
        Ok(filter.identified())
    }

    /// The filter that also leaves out everything but these entries, relative to the root of the
    /// tree, what is in them, and the directories above them.
    #[must_use]
    pub fn with_only(mut self, paths: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let paths: HashSet<Vec<u8>> = paths.into_iter().collect();
        let above = paths.iter().flat_map(|path| upwards(path).skip(1));
        let above = above.map(blake3::hash).collect();
        // A sum, since their order doesn't matter.
        let mut digest = [0_u8; 32];
        for path in &paths {
            let one: [u8; 32] = blake3::hash(path).into();
            for (sum, byte) in digest.iter_mut().zip(one) {
                *sum = sum.wrapping_add(byte);
            }
        }
        self.only = Some(Arc::new(ListedPaths {
            paths,
            above,
            digest,
        }));
        self.identified()
    }

    /// The filter that also leaves out files beyond these limits. Ages count from now.
    #[must_use]
    pub fn with_limits(mut self, limits: FileLimits) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.now_ns = now.map_or(0, |now| i128::try_from(now.as_nanos()).unwrap_or(i128::MAX));
        self.limits = limits;
        self.identified()
    }

    /// The filter with the identity that follows from its parts, in whichever order it got them.
    fn identified(mut self) -> Self {
        let limits = self.limits.identity();
        let parts: [(&[u8], Option<&[u8]>); 2] = [
            (b"limits", self.has_limits().then_some(limits.as_bytes())),
            (b"only", self.only.as_ref().map(|only| &only.digest[..])),
        ];
        let mut identity = self.rules_digest;
        for (what, digest) in parts {
            if let Some(digest) = digest {
                let mut hasher = blake3::Hasher::new();
                hasher.update(&identity.unwrap_or_default());
                hasher.update(what).update(digest);
                identity = Some(hasher.finalize().into());
            }
        }
        self.identity = identity;
        self
    }

    /// A digest of the filter; empty if it leaves out nothing.
    pub(crate) fn identity(&self) -> &[u8] {
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
        let decides = |rule: &&Rule| rule.matches(path, is_directory);
        let last = rules.iter().rev().find(decides);
        last.is_some_and(|rule| !rule.includes)
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

/// Adds a single pattern, and returns its line. Unlike one in a file, it was written for this
/// command: that it can match nothing is a slip.
fn add(rules: &mut Vec<Rule>, sign: &str, pattern: &str) -> Result<Vec<u8>, Fault> {
    let line = format!("{sign}{pattern}");
    let is_comment = pattern.starts_with('#');
    let is_twice = !sign.is_empty() && pattern.starts_with('!');
    let rule = Rule::parse(line.as_bytes()).filter(|rule| rule.pattern.is_valid());
    match rule.filter(|_| !is_comment && !is_twice && !pattern.contains('\n')) {
        Some(rule) => rules.push(rule),
        None => {
            let pattern = pattern.escape_default();
            return Err(bad(&format!("'{pattern}' is not a valid pattern")));
        }
    }
    Ok(line.into_bytes())
}

/// Reads a file of rules.
fn read_file(path: &Path) -> Result<Vec<u8>, Fault> {
    let name = path.as_os_str().as_encoded_bytes();
    let io = |error: &std::io::Error| Fault::from_io(OPERATION, name, error);
    let length = std::fs::metadata(path).map_err(|error| io(&error))?.len();
    if length > FILE_BYTES_MAX {
        return Err(bad(&format!("it is longer than {FILE_BYTES_MAX} bytes")).path(name));
    }
    std::fs::read(path).map_err(|error| io(&error))
}

/// Adds the rules of a text, and returns it.
fn add_lines<'t>(rules: &mut Vec<Rule>, text: &'t [u8]) -> &'t [u8] {
    let lines = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    for line in lines.split(|b| *b == b'\n') {
        rules.extend(Rule::parse(line.strip_suffix(b"\r").unwrap_or(line)));
    }
    text
}

/// A line of a gitignore file.
struct Rule {
    pattern: PathPattern,
    /// It begins with `!`.
    includes: bool,
    /// It ends in a slash.
    directories_only: bool,
}

impl Rule {
    /// Parses a line; `None` if it has no pattern.
    fn parse(line: &[u8]) -> Option<Self> {
        if line.starts_with(b"#") {
            return None;
        }
        let line = without_blanks(line);
        let included = line.strip_prefix(b"!");
        let pattern = included.unwrap_or(line);
        let directory = pattern.strip_suffix(b"/");
        let pattern = directory.unwrap_or(pattern);
        (!pattern.is_empty()).then(|| Self {
            pattern: PathPattern::new(pattern),
            includes: included.is_some(),
            directories_only: directory.is_some(),
        })
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        (is_directory || !self.directories_only) && self.pattern.matches(path)
    }
}

/// A line without the blanks at its end, unless a backslash is before them.
fn without_blanks(line: &[u8]) -> &[u8] {
    let mut end = 0;
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        at += if *byte == b'\\' { 2 } else { 1 };
        if *byte != b' ' {
            end = at.min(line.len());
        }
    }
    &line[..end]
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
    fn odd_rules() {
        for bad in ["[a", "", " ", "#x", "a\nb", "a\\", "[[:x:]]", "!", "/"] {
            let rule = FilterRule::Exclude(bad.into());
            let fault = Filter::new(&[rule]).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument, "{bad}");
        }
        assert!(Filter::new(&[FilterRule::Include("!x".into())]).is_err());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        // Odd patterns of files match nothing, as for git.
        let lines = b"# words\r\n\r\n*.o\r\n[z-a]\n[b\nc\\\n[[:x:]]\n\xff\n";
        std::fs::write(&path, lines).unwrap();
        let rules = Filter::new(&[FilterRule::File(path.clone())]).unwrap();
        assert!(rules.leaves_out(b"\xff", false) && rules.leaves_out(b"b.o", false));
        assert!(!rules.leaves_out(b"[b", false) && !rules.leaves_out(b"x", false));
        std::fs::write(&path, "\u{feff}*.o\r\n!a.o\n").unwrap();
        let rules = Filter::new(&[FilterRule::File(path)]).unwrap();
        assert!(rules.leaves_out(b"b.o", false) && !rules.leaves_out(b"a.o", false));
        let missing = folder.path().join("missing");
        let fault = Filter::new(&[FilterRule::File(missing)]).unwrap_err();
        assert_eq!(fault.code, Code::NotFound);
    }

    /// The entries of [`verdicts_are_those_of_git`].
    const TREE: &[&str] = &[
        "a",
        "ab",
        "a{b}",
        "{x,y}.txt",
        "x.txt",
        "a{b",
        "a}b",
        "[a",
        "[]",
        "a\\",
        "-",
        "]",
        "!a",
        "#h",
        "file7",
        "fileA",
        "b ",
        "a b",
        "\u{e9}",
        "a\u{e9}b",
        ".hid",
        "{{cookiecutter.name}}",
        "d/a",
        "d/ab",
        "d/c.txt",
        "d/e/a",
        "d/e/b1",
        "d/e/f/a",
        "d/e/f/c.txt",
        "foo/bar",
        "foox/y/bar",
        "foo/a/bar",
        "x/d/a",
        "b1/z",
        "[d]/a",
    ];
    /// The parts of the patterns.
    const PARTS: &[&str] = &[
        "a",
        "b",
        "d",
        "e",
        "f",
        "x",
        "foo",
        "bar",
        ".txt",
        "c",
        "1",
        "file",
        "*",
        "*",
        "*",
        "**",
        "**/",
        "/**",
        "/**/",
        "/",
        "/",
        "?",
        "?",
        "[",
        "]",
        "[a-c]",
        "[!a]",
        "[^b]",
        "[]a]",
        "[c-a]",
        "[a-",
        "[[:digit:]]",
        "[[:alpha:]-]",
        "[[:no:]]",
        "[[:",
        ":]",
        "\\",
        "\\",
        "{",
        "}",
        "{a,b}",
        ",",
        "!",
        "-",
        " ",
        "\u{e9}",
        "#",
        "[\\]]",
        "[d]",
        "[/]",
        "[*]",
    ];

    /// The verdicts of git and of a filter about each entry, under patterns as they are known to be
    /// difficult and some hundreds of generated ones.
    #[test]
    fn verdicts_are_those_of_git() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};

        let folder = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(folder.path()).args(args);
            git.env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("HOME", folder.path());
            git
        };
        match git(&["init", "-q"]).status() {
            Ok(status) if status.success() => {}
            _ => return xdfs_testkit::skip::test("git isn't installed"),
        }
        let mut entries = Vec::new();
        for path in TREE {
            let file = folder.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            if std::fs::write(file, "").is_err() {
                continue;
            }
            entries.push((*path, false));
            let above = upwards(path.as_bytes()).skip(1);
            entries.extend(above.map(|path| (str::from_utf8(path).unwrap(), true)));
        }
        entries.sort_unstable();
        entries.dedup();
        let stdin: Vec<u8> = entries
            .iter()
            .flat_map(|(path, _)| [path.as_bytes(), b"\0"].concat())
            .collect();

        let mut files: Vec<String> = [
            "a{b}",
            "{x,y}.txt",
            "a{b",
            "a}b",
            "/{{cookiecutter.name}}",
            "file[[:digit:]]",
            "[c-a]*",
            "[a",
            "[]",
            "a\\",
            "foo**/bar",
            "?oo**/bar",
            "foo/**/bar",
            "foo/**",
            "foo**",
            "**",
            "*/",
            "*/*",
            "/*",
            "!",
            "/",
            "//",
            "d//",
            "b\\ ",
            "b ",
            "a b  ",
            "*\n!*/\n!*.txt",
            "d/\n!d/a",
            "d/*\n!d/e",
            "*.txt\r\n!x.txt\r",
            "#h",
            "\\#h",
            "\\!a",
            "d\\/a",
            "d/**\\/a",
            "?",
            "\u{feff}a",
            "[\u{e9}]*",
            "**/e/**/a",
            "[[]d]/a",
            "[[]*",
            "d/e/f/",
            "**/f/",
            "a\t",
        ]
        .map(str::to_owned)
        .to_vec();
        let mut random = xdfs_testkit::tree::Random::new(7);
        for _ in 0..500 {
            let mut below = |n: usize| usize::try_from(random.below(n as u64)).unwrap();
            let lines = (0..1 + below(2)).map(|line| {
                let sign = if line > 0 { "!" } else { "" };
                let parts = (0..1 + below(5)).map(|_| PARTS[below(PARTS.len())]);
                sign.to_owned() + &parts.collect::<String>()
            });
            files.push(lines.collect::<Vec<_>>().join("\n"));
        }
        let mut matching = 0;
        for text in &files {
            std::fs::write(folder.path().join(".git/info/exclude"), text).unwrap();
            let mut check = git(&["-c", "core.ignorecase=false", "check-ignore"])
                .args(["--no-index", "-z", "--stdin"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            check.stdin.take().unwrap().write_all(&stdin).unwrap();
            let ignored = check.wait_with_output().unwrap().stdout;
            let ignored: HashSet<&[u8]> = ignored.split(|byte| *byte == 0).collect();

            let rules = folder.path().join(".git/rules");
            std::fs::write(&rules, text).unwrap();
            let filter = Filter::new(&[FilterRule::File(rules)]).unwrap();
            for (path, is_directory) in &entries {
                let path = path.as_bytes();
                let out = filter.leaves_out(path, *is_directory)
                    || upwards(path)
                        .skip(1)
                        .any(|path| filter.leaves_out(path, true));
                let shown = String::from_utf8_lossy(path);
                assert_eq!(out, ignored.contains(path), "{shown:?} under {text:?}");
                matching += usize::from(out);
            }
        }
        assert!(matching > files.len(), "{matching}");
    }
}
