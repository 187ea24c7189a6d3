//! Filters of tree entries, with the syntax and semantics of gitignore files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Selects the entries of a tree to leave out. The last matching rule decides. A directory that is
/// left out isn't listed, so nothing beneath it can be included again.
#[derive(Clone, Default)]
pub struct Filter {
    rules: Option<Arc<Gitignore>>,
    /// A digest of the rules.
    identity: [u8; 32],
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
        Ok(Self {
            rules: (!rules.is_empty()).then(|| Arc::new(rules)),
            identity: identity.finalize().into(),
        })
    }

    /// A digest of the rules; empty without any.
    pub(super) fn identity(&self) -> &[u8] {
        match &self.rules {
            Some(_) => &self.identity,
            None => &[],
        }
    }

    /// Whether the rules leave out the entry at `path`, relative to the root of the tree. The
    /// directories above it aren't considered: the contents of an excluded directory are never
    /// passed to this.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
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
        f.debug_struct("Filter").field("rules", &rules).finish()
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
