//! Style as a test: the rules of CONTRIBUTING.md that a program can check.
//!
//! Formatting and lints are not here; rustfmt and clippy do those.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::circles::Imports;
use crate::ratchet::Counts;
use crate::{Failure, Outcome, root};

/// Lines of a source file of a crate; a longer one has more than one concept.
const LONGEST_FILE: usize = 900;

/// Characters of a line.
const LONGEST_LINE: usize = 100;

/// The one crate that may use `unsafe`.
const UNSAFE_CRATE: &str = "crates/xdfs-sys/";

/// What stands for work not done. In two halves, so that this file may hold them.
const UNFINISHED: [&str; 5] = [
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
    concat!("db", "g!("),
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
];

/// Folders of one machine. A test makes a temporary folder instead.
const MACHINE_FOLDERS: [&str; 3] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/t", "mp/"),
];

/// Where the numbered rules of the protocol stand.
const SPECIFICATION: &str = "docs/protocol/";

/// Hosts of package registries: which one is used is the user's configuration.
const REGISTRY_HOSTS: [&str; 4] = [
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
];

/// How tests begin to tell that they left something out, which nobody counts when it is printed.
const PRINTED_SKIPS: [&str; 4] = ["skip", "left out", "not run", "not offloaded"];

/// The one file that prints it, and has it counted.
const SKIPS: &str = "crates/xdfs-testkit/src/skip.rs";

pub(crate) fn run() -> Outcome {
    let mut files = Vec::new();
    collect(root(), &mut files).map_err(|e| format!("can't list the workspace: {e}"))?;
    files.sort();
    let mut faults = Vec::new();
    let mut checked = 0;
    let (mut rules, mut imports) = (Rules::default(), Imports::default());
    let mut counts = Counts::default();
    for path in &files {
        let name = path.strip_prefix(root()).unwrap_or(path);
        let name = name.to_string_lossy().replace('\\', "/");
        let text = fs::read(path).map_err(|e| format!("can't read {name}: {e}"))?;
        let Ok(text) = String::from_utf8(text) else {
            faults.push(format!("{name}: not UTF-8"));
            continue;
        };
        checked += 1;
        rules.read(&name, &text);
        imports.read(&name, &text);
        counts.read(&name, &text);
        faults.extend(
            file_faults(&name, &text)
                .into_iter()
                .map(|f| format!("{name}{f}")),
        );
    }
    faults.extend(rules.faults());
    faults.extend(imports.faults());
    faults.extend(counts.faults());
    if faults.is_empty() {
        println!("xtask: {checked} files are tidy");
        return Ok(());
    }
    Err(Failure::Message(format!(
        "not tidy:\n  {}",
        faults.join("\n  ")
    )))
}

/// Rules of the specification, as `**[S-18]**` where one stands and `[S-18]` where it is named.
#[derive(Default)]
struct Rules {
    stated: BTreeSet<String>,
    named: Vec<(String, String)>,
    faults: Vec<String>,
}

impl Rules {
    fn read(&mut self, name: &str, text: &str) {
        let states = name.starts_with(SPECIFICATION) && name.ends_with(".md");
        for (number, line) in (1..).zip(text.lines()) {
            for (at, rule) in rules_in(line) {
                let place = format!("{name}:{number}");
                let is_stated = states
                    && line[..at].ends_with("**[")
                    && line[at + rule.len()..].starts_with("]**");
                if !is_stated {
                    self.named.push((place, rule.to_owned()));
                } else if !self.stated.insert(rule.to_owned()) {
                    self.faults.push(format!("{place}: a second rule {rule}"));
                }
            }
        }
    }

    fn faults(self) -> Vec<String> {
        let mut faults = self.faults;
        for (place, rule) in self.named {
            if !self.stated.contains(&rule) {
                faults.push(format!("{place}: the specification has no rule {rule}"));
            }
        }
        faults
    }
}

/// Numbers of rules in brackets, and where each begins: one or two capitals, `-`, digits.
fn rules_in(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.match_indices('[').filter_map(|(at, _)| {
        let (rule, _) = line[at + 1..].split_once(']')?;
        let (letters, number) = rule.split_once('-')?;
        let is_rule = matches!(letters.len(), 1 | 2)
            && letters.bytes().all(|b| b.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit());
        is_rule.then_some((at + 1, rule))
    })
}

/// Text files of the repository. What tools made is not ours to keep tidy.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !["target", ".git", "corpus", "artifacts"].contains(&name.as_ref()) {
                collect(&path, files)?;
            }
        } else if is_ours(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_ours(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name);
    let script = folder.is_some_and(|folder| folder == ".ci");
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    script
        || ["rs", "py", "toml", "md", "json", "sh", "txt", "c", "h"].contains(&extension.as_ref())
}

/// What is wrong with one file, each as `:LINE: MESSAGE` or `: MESSAGE`.
fn file_faults(name: &str, text: &str) -> Vec<String> {
    let mut faults = line_faults(name, text);
    let mut whole = |wrong: bool, message: &str| {
        if wrong {
            faults.push(format!(": {message}"));
        }
    };
    whole(
        !text.is_empty() && !text.ends_with('\n'),
        "no newline at the end",
    );
    if name.ends_with(".rs") {
        whole(
            !text.starts_with("//!"),
            "does not begin with //! and what it is",
        );
        whole(
            name.starts_with("crates/") && name != SKIPS && prints_a_skip(text),
            "prints that something was skipped: xdfs_testkit::skip has it counted",
        );
        let in_source = name.starts_with("crates/") && name.contains("/src/");
        whole(
            in_source && text.lines().count() > LONGEST_FILE,
            &format!("over {LONGEST_FILE} lines"),
        );
        let is_root = name.ends_with("/src/lib.rs") || name.ends_with("/src/main.rs");
        whole(
            is_root && !may_be_unsafe(name) && !text.contains("#![forbid(unsafe_code)]"),
            "a crate has to forbid unsafe code",
        );
    }
    if name.starts_with("crates/") && name.ends_with("/Cargo.toml") {
        whole(
            !text.contains("[lints]\nworkspace = true"),
            "has to take the workspace's lints",
        );
        let own = |line: &str| line.contains("version = \"") && !line.starts_with('#');
        whole(
            text.lines().any(own),
            "versions stand in the root Cargo.toml only",
        );
    }
    faults
}

fn line_faults(name: &str, text: &str) -> Vec<String> {
    let rust = name.ends_with(".rs");
    let mut in_tests = name.contains("/tests/");
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut wrong = |is: bool, message: &str| {
            if is {
                faults.push(format!(":{number}: {message}"));
            }
        };
        for word in MACHINE_FOLDERS {
            wrong(
                has_path(line, word),
                &format!("names {word}, a folder of one machine"),
            );
        }
        for host in REGISTRY_HOSTS {
            wrong(
                line.contains(host),
                &format!("names {host}, a registry's host"),
            );
        }
        if !rust {
            continue;
        }
        in_tests |= line.trim_start().starts_with("#[cfg(test)]")
            || line.trim_start().starts_with("#[cfg(all(test");
        wrong(line.contains('\t'), "a tab");
        wrong(line.ends_with([' ', '\r']), "white space at the end");
        wrong(
            line.chars().count() > LONGEST_LINE,
            &format!("over {LONGEST_LINE} columns"),
        );
        wrong(!in_tests && !line.is_ascii(), "not ASCII");
        for word in UNFINISHED {
            wrong(
                line.contains(word),
                &format!("{word} stands for work not done"),
            );
        }
        wrong(
            !may_be_unsafe(name) && is_unsafe(line),
            "unsafe outside of xdfs-sys",
        );
    }
    faults
}

fn may_be_unsafe(name: &str) -> bool {
    name.starts_with(UNSAFE_CRATE)
}

/// Whether code on this line uses the keyword; words in comments and lint names do not count.
fn is_unsafe(line: &str) -> bool {
    let keyword = concat!("un", "safe");
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(keyword).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + keyword.len()..].trim_start();
        let uses = ["{", "fn ", "impl ", "impl<", "trait ", "extern ", "("];
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '"')
            && uses.iter().any(|u| after.starts_with(u))
    })
}

/// Whether a line is printed that tells of a test left out, also in part.
fn prints_a_skip(text: &str) -> bool {
    text.split("println!(").skip(1).any(|printed| {
        let Some(printed) = printed.trim_start().strip_prefix('"') else {
            return false;
        };
        let printed: String = printed.chars().take(20).collect();
        let printed = printed.to_lowercase();
        PRINTED_SKIPS.iter().any(|skip| printed.starts_with(skip))
    })
}

/// Whether an absolute path that begins with `folder` stands in the line; the same name further
/// down in a path or address does not count.
fn has_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"/._-:}$".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "//! What it is.\n\n#![forbid(unsafe_code)]\n";

    fn faults(name: &str, body: &str) -> usize {
        file_faults(name, &format!("{HEAD}{body}")).len()
    }

    #[test]
    fn rules_that_nothing_states_and_second_ones_are_found() {
        let mut rules = Rules::default();
        let stated = concat!("- **[", "S-1]** A.\n- **[", "S-2]** As [", "S-1].\n");
        rules.read("docs/protocol/a.md", stated);
        rules.read("docs/protocol/b.md", concat!("- **[", "S-2]** B.\n"));
        rules.read(
            "crates/a.rs",
            concat!("// [", "S-2], [", "S-3], [a-1], [A-Z], [0].\n"),
        );
        let faults = rules.faults();
        let no_rule = concat!("crates/a.rs:1: the specification has no rule ", "S-3");
        assert_eq!(faults, ["docs/protocol/b.md:1: a second rule S-2", no_rule]);
    }

    #[test]
    fn a_tidy_file_has_no_faults() {
        assert_eq!(
            faults("crates/a/src/lib.rs", "/// A unit.\npub struct A;\n"),
            0
        );
    }

    #[test]
    fn each_rule_finds_its_fault() {
        let long = format!("// {}\n", "x".repeat(LONGEST_LINE));
        let unfinished = format!("fn f() {{ {}) }}\n", UNFINISHED[0]);
        let machine = format!("const P: &str = \"{}x\";\n", MACHINE_FOLDERS[0]);
        let host = format!("// see {}\n", REGISTRY_HOSTS[0]);
        let keyword = format!("    {} {{ f() }}\n", concat!("un", "safe"));
        for body in ["\tlet x;\n", "x \n", "// \u{e4}\n", "no newline"] {
            assert_eq!(faults("crates/a/src/x.rs", body), 1, "{body:?}");
        }
        for body in [long, unfinished, machine, host, keyword] {
            assert_eq!(faults("crates/a/src/x.rs", &body), 1, "{body:?}");
        }
        assert_eq!(faults("crates/a/src/x.rs", &"//\n".repeat(LONGEST_FILE)), 1);
        for printed in ["println!(\"skipped: no", "eprintln!(\n    \"Not offloaded"] {
            assert_eq!(
                faults("crates/a/tests/x.rs", &format!("{printed}\");\n")),
                1
            );
            assert_eq!(faults(SKIPS, &format!("{printed}\");\n")), 0);
        }
        assert_eq!(file_faults("crates/a/src/x.rs", "fn f() {}\n").len(), 1);
        assert_eq!(file_faults("crates/a/src/lib.rs", "//! A.\n").len(), 1);
    }

    #[test]
    fn rules_end_where_they_say() {
        let keyword = concat!("un", "safe");
        assert_eq!(
            faults(
                "crates/xdfs-sys/src/x.rs",
                &format!("{keyword} {{ f() }}\n")
            ),
            0
        );
        assert_eq!(
            faults("crates/a/src/x.rs", &format!("// {keyword} {{\n")),
            0
        );
        assert_eq!(faults("crates/a/src/x.rs", "#![deny(unsafe_code)]\n"), 0);
        assert_eq!(faults("crates/a/tests/x.rs", "// \u{e4}\n"), 0);
        assert_eq!(faults("crates/a/src/x.rs", "#[cfg(test)]\n// \u{e4}\n"), 0);
        let address = format!("// xdfs://host{}x\n", MACHINE_FOLDERS[2]);
        assert_eq!(faults("crates/a/src/x.rs", &address), 0);
    }

    #[test]
    fn manifests_take_versions_and_lints_from_the_root() {
        let good = "[lints]\nworkspace = true\n[dependencies]\na.workspace = true\n";
        assert_eq!(file_faults("crates/a/Cargo.toml", good).len(), 0);
        let own = format!("{good}b = {{ version = \"1\" }}\n");
        assert_eq!(file_faults("crates/a/Cargo.toml", &own).len(), 1);
        assert_eq!(
            file_faults("crates/a/Cargo.toml", "[dependencies]\n").len(),
            1
        );
    }
}
