//! Checks that sensitive files do not lie beneath served directories.
//!
//! A server that serves the folder of its own key and user lists can be taken over by anyone with
//! access there. Paths are compared by identity (device and inode), at each step and through each
//! link, so that spellings, links and mounts make no difference. A path that doesn't exist yet is
//! judged by the directory in which it would be created. Two cases aren't detected: another hard
//! link to a file, and another mount of the same directory elsewhere.

use std::collections::VecDeque;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::folder::USER;

/// Maximum number of links followed on one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// The served directories.
#[derive(Clone, Debug)]
pub struct Roots(Vec<Root>);

#[derive(Clone, Debug)]
struct Root {
    /// As in the settings.
    path: PathBuf,
    /// The directory; with `{user}` in the path, the part before it.
    fixed: PathBuf,
    node: Option<Node>,
    /// The components from the first one with `{user}` on.
    template: Vec<String>,
}

impl Roots {
    /// The directories at `paths`, in which `{user}` stands for any user. They need not exist.
    ///
    /// # Errors
    /// There is no current directory for a relative path.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a Path>) -> io::Result<Self> {
        let roots = paths.into_iter().map(Root::new);
        roots.collect::<io::Result<_>>().map(Self)
    }

    /// The first root that is `path` or contains it.
    ///
    /// # Errors
    /// See [`Roots::new`].
    pub fn holding(&self, path: &Path) -> io::Result<Option<&Path>> {
        let mut ways = VecDeque::from([plain(path)?]);
        let mut seen = 0;
        while let Some(way) = ways.pop_front() {
            for step in way.ancestors() {
                let rest = way.strip_prefix(step).unwrap_or_else(|_| Path::new(""));
                let node = node_of(step);
                let held = self
                    .0
                    .iter()
                    .find(|root| root.is_at(step, node.as_ref(), rest));
                if let Some(root) = held {
                    return Ok(Some(&root.path));
                }
                // Whoever may write to the link's directory can redirect it.
                if let (Ok(target), Some(parent)) = (std::fs::read_link(step), step.parent())
                    && seen < LINKS_MAX
                {
                    seen += 1;
                    ways.push_back(plain(&parent.join(target).join(rest))?);
                }
            }
        }
        Ok(None)
    }
}

impl Root {
    fn new(path: &Path) -> io::Result<Self> {
        let has_user = |component: &Component<'_>| {
            let text = component.as_os_str().to_string_lossy();
            text.contains(USER)
        };
        let fixed: PathBuf = path.components().take_while(|c| !has_user(c)).collect();
        let template = path.components().skip_while(|c| !has_user(c));
        let template = template
            .map(|component| component.as_os_str().to_string_lossy().into_owned())
            .collect();
        let fixed = plain(&fixed)?;
        Ok(Self {
            path: path.to_owned(),
            node: node_of(&fixed),
            fixed,
            template,
        })
    }

    /// Whether this root, for some user, is on the path `rest` from `step` on.
    fn is_at(&self, step: &Path, node: Option<&Node>, rest: &Path) -> bool {
        let is_same = step == self.fixed || (node.is_some() && node == self.node.as_ref());
        let mut rest = rest.components();
        is_same
            && self.template.iter().all(|pattern| {
                rest.next()
                    .is_some_and(|name| fits(pattern, &name.as_os_str().to_string_lossy()))
            })
    }
}

/// Whether `pattern` matches `name` for some user name in place of `{user}`.
fn fits(pattern: &str, name: &str) -> bool {
    let (Some((before, _)), Some((_, after))) =
        (pattern.split_once(USER), pattern.rsplit_once(USER))
    else {
        return pattern == name;
    };
    let user = name
        .strip_prefix(before)
        .and_then(|name| name.strip_suffix(after));
    // User names do not begin with a dot.
    user.is_some_and(|user| !user.is_empty() && !user.starts_with('.'))
}

/// The absolute path. `..` is resolved as by the kernel.
fn plain(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    })?;
    if !path.components().any(|c| c == Component::ParentDir) {
        return Ok(path);
    }
    for step in path.ancestors() {
        if let Ok(real) = step.canonicalize() {
            return Ok(real.join(path.strip_prefix(step).unwrap_or_else(|_| Path::new(""))));
        }
    }
    Ok(path)
}

#[cfg(unix)]
type Node = (u64, u64);

#[cfg(unix)]
fn node_of(path: &Path) -> Option<Node> {
    use std::os::unix::fs::MetadataExt as _;
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

#[cfg(not(unix))]
type Node = PathBuf;

#[cfg(not(unix))]
fn node_of(path: &Path) -> Option<Node> {
    path.canonicalize().ok()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Whether `path` lies beneath one of `roots`, all relative to `folder`.
    #[track_caller]
    fn holds(folder: &Path, roots: &[&str], path: &str) -> bool {
        let paths: Vec<PathBuf> = roots.iter().map(|root| folder.join(root)).collect();
        let roots = Roots::new(paths.iter().map(PathBuf::as_path)).unwrap();
        roots.holding(&folder.join(path)).unwrap().is_some()
    }

    #[test]
    fn what_lies_beneath_a_root_is_found_however_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("home/.config/xdfs")).unwrap();
        fs::create_dir_all(folder.join("srv/data")).unwrap();
        symlink("home", folder.join("alias")).unwrap();
        symlink("../srv", folder.join("home/link")).unwrap();
        symlink("home/link/data", folder.join("through")).unwrap();
        for (root, path, expected) in [
            ("home", "home/.config/xdfs", true),
            ("home", "home", true),
            ("home/.config/xdfs", "home/.config/xdfs/server.key", true),
            // Doesn't exist yet.
            ("home", "home/.local/state/xdfs", true),
            ("new", "new/xdfs", true),
            ("alias", "home/.config/xdfs", true),
            ("home", "alias/.config", true),
            ("home/.config/..", "home/.config", true),
            // Through an exchangeable link in the root to a place outside.
            ("home", "home/link/data/xdfs", true),
            ("home", "through/xdfs", true),
            ("srv", "through/xdfs", true),
            ("srv", "home/.config/xdfs", false),
            ("srv", "srv/../home", false),
            ("srv/data", "srv", false),
            ("hom", "home", false),
        ] {
            assert_eq!(holds(folder, &[root], path), expected, "{root}, {path}");
        }
        assert!(holds(folder, &["none", "srv", "home"], "home/x"));
        assert!(!holds(folder, &[], "home/x"));
    }

    #[test]
    fn a_root_of_each_user_holds_what_one_of_them_would() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("home/alice")).unwrap();
        for (root, path, expected) in [
            ("home/{user}", "home/alice/.config/xdfs", true),
            ("home/{user}", "home/alice", true),
            ("home/{user}", "home/bob/.config", true),
            ("home/{user}", "home", false),
            ("home/{user}", "home/.xdfs/server", false),
            ("home/{user}/data", "home/alice/.config", false),
            ("home/{user}/data", "home/alice/data/x", true),
            ("home/u-{user}", "home/alice/x", false),
            ("home/u-{user}", "home/u-alice/x", true),
        ] {
            assert_eq!(holds(folder, &[root], path), expected, "{root}, {path}");
        }
    }

    #[test]
    fn a_loop_of_links_comes_to_an_end() {
        let folder = tempfile::tempdir().unwrap();
        symlink("b", folder.path().join("a")).unwrap();
        symlink("a", folder.path().join("b")).unwrap();
        assert!(!holds(folder.path(), &["c"], "a/x"));
    }
}
