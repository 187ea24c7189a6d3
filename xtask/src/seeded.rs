//! Seeded bugs: a kept list of plausible mistakes, each of which some test has to catch.
//!
//! They stand in `seeded/*.bugs`, in the format that CONTRIBUTING.md describes. Each is built into
//! a copy of the tree in `target/seeded`, one at a time, and its tests are run there, which have to
//! pass without it; the checkout is never touched. By hand, since it takes minutes.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Failure, Outcome, cargo, root};

/// A test that hangs with its bug is caught by this. A build may take as long as it does.
const PATIENCE: Duration = Duration::from_secs(600);

/// One mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bug {
    /// The name of the list that has it.
    area: String,
    name: String,
    /// Path of the source file, relative to the root.
    file: String,
    /// What it would do to a user.
    why: String,
    /// Arguments of `cargo test`, one command a line.
    tests: Vec<String>,
    find: String,
    replace: String,
}

/// What came of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Caught,
    Survived,
    DoesNotApply,
    DoesNotBuild,
}

impl Fate {
    const ALL: [Self; 4] = [
        Self::Caught,
        Self::Survived,
        Self::DoesNotApply,
        Self::DoesNotBuild,
    ];

    fn shown(self) -> &'static str {
        match self {
            Self::Caught => "caught",
            Self::Survived => "survived",
            Self::DoesNotApply => "does not apply",
            Self::DoesNotBuild => "does not build",
        }
    }
}

impl Bug {
    /// The text with the mistake in it; `None` if what it changes isn't there exactly once.
    fn apply(&self, text: &str) -> Option<String> {
        let (before, after) = text.split_once(&self.find)?;
        let at_line = before.is_empty() || before.ends_with('\n');
        let is_once = at_line && !after.contains(&self.find);
        is_once.then(|| format!("{before}{}{after}", self.replace))
    }
}

/// The bugs of a file.
fn parse(text: &str) -> Result<Vec<Bug>, String> {
    let mut bugs: Vec<Bug> = Vec::new();
    let mut section = "";
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: &str| format!("line {number}: {what}");
        if let Some(name) = line.strip_prefix("== ") {
            let name = name.trim().to_owned();
            bugs.push(Bug {
                name,
                ..Bug::default()
            });
            section = "head";
            continue;
        }
        let Some(bug) = bugs.last_mut() else {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            return Err(wrong("text before the first bug"));
        };
        match (section, line) {
            (_, "-- find") => section = "find",
            (_, "-- replace") => section = "replace",
            ("head", "") => {}
            ("head", line) => match line.split_once(": ") {
                Some(("file", file)) => bug.file = file.trim().to_owned(),
                Some(("why", why)) => bug.why = why.trim().to_owned(),
                Some(("tests", tests)) => bug.tests.push(tests.trim().to_owned()),
                _ => return Err(wrong("neither file, why nor tests")),
            },
            ("find", line) => bug.find += &format!("{line}\n"),
            (_, line) => bug.replace += &format!("{line}\n"),
        }
    }
    for bug in &mut bugs {
        for text in [&mut bug.find, &mut bug.replace] {
            let length = text.trim_end_matches('\n').len();
            text.truncate(length);
            if !text.is_empty() {
                text.push('\n');
            }
        }
        let is_whole = ![&bug.name, &bug.file, &bug.why, &bug.find]
            .iter()
            .any(|text| text.is_empty());
        if !is_whole || bug.tests.is_empty() || bug.find == bug.replace {
            return Err(format!("{:?} has not all it needs", bug.name));
        }
    }
    Ok(bugs)
}

/// All bugs of the tree, by their files.
fn all() -> Result<Vec<Bug>, String> {
    let folder = root().join("seeded");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "bugs"))
        .collect();
    paths.sort();
    let mut bugs = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let parsed = parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let area = path.file_stem().unwrap_or_default().to_string_lossy();
        bugs.extend(parsed.into_iter().map(|bug| Bug {
            area: area.clone().into_owned(),
            ..bug
        }));
    }
    let mut names = HashSet::new();
    match bugs.iter().find(|bug| !names.insert(&bug.name)) {
        Some(bug) => Err(format!("two bugs are named {}", bug.name)),
        None => Ok(bugs),
    }
}

/// `seeded [--list] [NAME...]`: all of them, or those of a list or whose names begin with a NAME.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args: Vec<String> = args
        .iter()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    let (flags, names): (Vec<_>, Vec<_>) = args.iter().partition(|arg| arg.starts_with('-'));
    if let Some(flag) = flags.iter().find(|flag| **flag != "--list") {
        return Err(Failure::Message(format!("no such flag: {flag}")));
    }
    let mut bugs = all()?;
    let is_named = |bug: &Bug, name: &str| bug.area == name || bug.name.starts_with(name);
    bugs.retain(|bug| names.is_empty() || names.iter().any(|name| is_named(bug, name)));
    if bugs.is_empty() {
        return Err(Failure::Message("no bug has such a name".into()));
    }
    if !flags.is_empty() {
        for bug in &bugs {
            println!("{} ({}): {}", bug.name, bug.file, bug.why);
        }
        println!("{} bugs", bugs.len());
        return Ok(());
    }
    let copy = Copy::make()?;
    copy.check_tests(&bugs)?;
    let mut fates = Vec::new();
    for bug in &bugs {
        let began = Instant::now();
        let fate = copy.try_out(bug)?;
        let seconds = began.elapsed().as_secs();
        println!("{:14} {} ({seconds} s)", fate.shown(), bug.name);
        fates.push(fate);
    }
    let count = |fate| fates.iter().filter(|f| **f == fate).count();
    let counts: Vec<String> = Fate::ALL
        .iter()
        .map(|fate| format!("{} {}", count(*fate), fate.shown()))
        .collect();
    println!("{} bugs: {}", bugs.len(), counts.join(", "));
    if count(Fate::Caught) == bugs.len() {
        Ok(())
    } else {
        Err(Failure::Status(1))
    }
}

/// A copy of the tree, and what was built of it, which is kept from run to run.
struct Copy {
    folder: PathBuf,
}

impl Copy {
    fn make() -> Result<Self, Failure> {
        let folder = root().join("target/seeded/tree");
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root())
            .output()
            .map_err(|e| format!("can't run git: {e}"))?;
        if !listed.status.success() {
            return Err(Failure::Message(
                "git can't list the files of the tree".into(),
            ));
        }
        let names = String::from_utf8_lossy(&listed.stdout).into_owned();
        let names: HashSet<&Path> = names
            .split('\0')
            .filter(|n| !n.is_empty())
            .map(Path::new)
            .collect();
        for name in &names {
            // One that was deleted and isn't committed so.
            if root().join(name).is_file() {
                copy_if_other(&root().join(name), &folder.join(name))?;
            }
        }
        let is_ours = |name: &Path| names.contains(name) && root().join(name).is_file();
        remove_others(&folder, &folder, &is_ours)?;
        Ok(Self { folder })
    }

    fn cargo_test(&self, args: &str) -> Command {
        let mut command = cargo();
        command
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", root().join("target/seeded/build"))
            .env_remove("CARGO_MANIFEST_DIR")
            // What is built again for each bug is built fast; what it needs of others as ever.
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .args(["test", "--locked", "--quiet"])
            .args(args.split_whitespace())
            .stdin(Stdio::null());
        command
    }

    /// Tests that fail without any bug would catch each of them.
    fn check_tests(&self, bugs: &[Bug]) -> Outcome {
        let tests: BTreeSet<&String> = bugs.iter().flat_map(|bug| &bug.tests).collect();
        for tests in tests {
            if self.passes(tests)? != Some(true) {
                let said = format!("without a bug these don't pass: cargo test {tests}");
                return Err(Failure::Message(said));
            }
        }
        Ok(())
    }

    /// Builds a bug in, and runs its tests.
    fn try_out(&self, bug: &Bug) -> Result<Fate, Failure> {
        let path = self.folder.join(&bug.file);
        let Ok(right) = fs::read_to_string(&path) else {
            return Ok(Fate::DoesNotApply);
        };
        let Some(wrong) = bug.apply(&right) else {
            return Ok(Fate::DoesNotApply);
        };
        write(&path, &wrong)?;
        let fate = self.test(bug);
        write(&path, &right)?;
        fate
    }

    fn test(&self, bug: &Bug) -> Result<Fate, Failure> {
        for tests in &bug.tests {
            match self.passes(tests)? {
                Some(true) => {}
                Some(false) => return Ok(Fate::Caught),
                None => return Ok(Fate::DoesNotBuild),
            }
        }
        Ok(Fate::Survived)
    }

    /// Builds tests and runs them; `None` if they don't build.
    fn passes(&self, tests: &str) -> Result<Option<bool>, Failure> {
        // Filters come after the names of targets, and don't belong to a build.
        let (targets, filters) = split(tests);
        let mut build = self.cargo_test(&targets);
        build.arg("--no-run").stderr(Stdio::null());
        if ended_well(&mut build, None)? != Some(true) {
            return Ok(None);
        }
        let mut test = self.cargo_test(&format!("{targets} -- {filters}"));
        test.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Some(ended_well(&mut test, Some(PATIENCE))? == Some(true)))
    }
}

/// The arguments of cargo, and the names of tests behind them.
fn split(tests: &str) -> (String, String) {
    let (mut targets, mut filters) = (Vec::new(), Vec::new());
    let mut takes_value = false;
    for word in tests.split_whitespace() {
        if word == "--" {
            continue;
        }
        if takes_value || word.starts_with('-') {
            takes_value = !takes_value && ["-p", "--package", "--test", "--bin"].contains(&word);
            targets.push(word);
        } else {
            filters.push(word);
        }
    }
    (targets.join(" "), filters.join(" "))
}

/// Whether a program ends with 0; `None` if it doesn't end within `patience`, and is killed.
fn ended_well(command: &mut Command, patience: Option<Duration>) -> Result<Option<bool>, Failure> {
    // In a group of its own, so that the tests that cargo started end with it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let mut child = command
        .spawn()
        .map_err(|e| format!("can't run cargo: {e}"))?;
    let began = Instant::now();
    while patience.is_none_or(|patience| began.elapsed() < patience) {
        let ended = child
            .try_wait()
            .map_err(|e| format!("can't wait for cargo: {e}"))?;
        if let Some(status) = ended {
            return Ok(Some(status.success()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    #[cfg(unix)]
    let _ = Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", child.id())])
        .status();
    let _ = child.kill();
    let _ = child.wait();
    Ok(None)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = fs::write(path, text);
    Ok(written.map_err(|e| format!("can't write {}: {e}", path.display()))?)
}

/// Copies a file unless the same stands there: what didn't change isn't built again.
fn copy_if_other(from: &Path, to: &Path) -> Result<(), Failure> {
    let fault = |e: std::io::Error| format!("can't copy {}: {e}", from.display());
    let bytes = fs::read(from).map_err(fault)?;
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(above) = to.parent() {
        fs::create_dir_all(above).map_err(fault)?;
    }
    fs::write(to, bytes).map_err(fault)?;
    let permissions = fs::metadata(from).map_err(fault)?.permissions();
    Ok(fs::set_permissions(to, permissions).map_err(fault)?)
}

/// Removes what an earlier copy had and the tree hasn't.
fn remove_others(
    folder: &Path,
    root: &Path,
    is_ours: &dyn Fn(&Path) -> bool,
) -> Result<(), Failure> {
    let fault = |e: std::io::Error| format!("can't tidy {}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let path = entry.path();
        if entry.file_type().map_err(fault)?.is_dir() {
            remove_others(&path, root, is_ours)?;
        } else if !path.strip_prefix(root).is_ok_and(is_ours) {
            fs::remove_file(&path).map_err(fault)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# words\n\n== one\nfile: a/b.rs\nwhy: it breaks\n\
        tests: -p a --lib x::y\ntests: -p a --test t\n-- find\n    a();\n\n    b();\n\
        -- replace\n    a();\n\n== two\nfile: c\nwhy: w\ntests: --lib\n-- find\nx\n-- replace\n";

    #[test]
    fn bugs_are_read() {
        let bugs = parse(TEXT).unwrap();
        assert_eq!(bugs.len(), 2);
        let one = &bugs[0];
        assert_eq!(
            (&*one.name, &*one.file, &*one.why),
            ("one", "a/b.rs", "it breaks")
        );
        assert_eq!(one.tests, ["-p a --lib x::y", "-p a --test t"]);
        assert_eq!(one.find, "    a();\n\n    b();\n");
        assert_eq!(one.replace, "    a();\n");
        assert_eq!((&*bugs[1].find, &*bugs[1].replace), ("x\n", ""));
        for bad in ["words", "== x\nfile: a\n", "== x\nnonsense\n"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bug_applies_to_whole_lines_that_stand_once() {
        let bugs = parse(TEXT).unwrap();
        let applied = bugs[1].apply("y\nx\nz\n");
        assert_eq!(applied.as_deref(), Some("y\nz\n"));
        for other in ["y\n", "x\nx\n", "yx\n"] {
            assert_eq!(bugs[1].apply(other), None, "{other:?}");
        }
    }

    #[test]
    fn filters_are_told_from_targets() {
        let of = |tests| split(tests);
        let expected = ("-p a --test t".to_owned(), "x y::z".to_owned());
        assert_eq!(of("-p a --test t x y::z"), expected);
        assert_eq!(of("-p a --test t -- x y::z"), expected);
        assert_eq!(of("-p a --lib x"), ("-p a --lib".into(), "x".into()));
    }

    /// A list whose bugs don't apply any more finds nothing.
    #[test]
    fn every_bug_applies_to_the_tree() {
        let bugs = all().unwrap();
        assert!(bugs.len() >= 40, "{}", bugs.len());
        let wrong: Vec<&str> = bugs
            .iter()
            .filter(|bug| {
                let text = fs::read_to_string(root().join(&bug.file)).unwrap_or_default();
                bug.apply(&text).is_none()
            })
            .map(|bug| &*bug.name)
            .collect();
        assert_eq!(
            wrong, [""; 0],
            "these don't stand exactly once in their files"
        );
    }
}
