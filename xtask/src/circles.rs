//! Circles of files: files of a crate that import from each other, directly or through others.
//!
//! Read from the text of `use` declarations. An import from a file's own ancestors in the module
//! tree doesn't count: names that siblings share stand there.

use std::collections::{BTreeMap, BTreeSet};

/// Circles that exist, each by its files. They may lose files, and none may be added.
const KNOWN: [&[&str]; 5] = [
    &[
        "crates/xdfs-gridftp/src/client/call.rs",
        "crates/xdfs-gridftp/src/client/directory.rs",
        "crates/xdfs-gridftp/src/client/fresh.rs",
        "crates/xdfs-gridftp/src/client/pack.rs",
        "crates/xdfs-gridftp/src/client/plain.rs",
        "crates/xdfs-gridftp/src/client/pool.rs",
        "crates/xdfs-gridftp/src/client/resumed.rs",
        "crates/xdfs-gridftp/src/client/runs.rs",
        "crates/xdfs-gridftp/src/client/segment.rs",
        "crates/xdfs-gridftp/src/client/sink.rs",
        "crates/xdfs-gridftp/src/client/source.rs",
        "crates/xdfs-gridftp/src/client/store.rs",
        "crates/xdfs-gridftp/src/client/third_party.rs",
        "crates/xdfs-gridftp/src/client/window.rs",
    ],
    &[
        "crates/xdfs-gridftp/src/client/link.rs",
        "crates/xdfs-gridftp/src/client/striping.rs",
    ],
    &[
        "crates/xdfs-gridftp/src/command.rs",
        "crates/xdfs-gridftp/src/getput.rs",
    ],
    &[
        "crates/xdfs-gridftp/src/door/channels.rs",
        "crates/xdfs-gridftp/src/door/stripes.rs",
    ],
    &[
        "crates/xdfs-gridftp/src/door/download.rs",
        "crates/xdfs-gridftp/src/door/exchange.rs",
        "crates/xdfs-gridftp/src/door/upload.rs",
    ],
];

/// The files of all crates, by the modules that they hold.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    /// The name of a file, by the folder of its crate and the path of its module.
    files: BTreeMap<(String, Vec<String>), String>,
    /// The paths that the file of a module imports.
    paths: BTreeMap<(String, Vec<String>), Vec<Vec<String>>>,
}

impl Imports {
    /// Reads a file, if it is a source file of a crate.
    pub(crate) fn read(&mut self, name: &str, text: &str) {
        let Some((folder, rest)) = name.split_once("/src/") else {
            return;
        };
        let Some(stem) = rest.strip_suffix(".rs") else {
            return;
        };
        let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
        let is_test = |part: &String| part == "tests" || part.ends_with("_tests");
        if module.iter().any(is_test) {
            return;
        }
        if matches!(
            module.last().map(String::as_str),
            Some("mod" | "lib" | "main")
        ) {
            module.pop();
        }
        let key = (folder.to_owned(), module);
        self.paths.insert(key.clone(), imported(text, &key.1));
        self.files.insert(key, name.to_owned());
    }

    /// The circles that aren't known, and the known ones that are no longer there.
    pub(crate) fn faults(&self) -> Vec<String> {
        let circles = self.circles();
        let known = |circle: &BTreeSet<String>| {
            let holds = |known: &&[&str]| circle.iter().all(|file| known.contains(&file.as_str()));
            KNOWN.iter().any(holds)
        };
        let new = circles.iter().filter(|circle| !known(circle));
        let new = new.map(|circle| {
            let files: Vec<&str> = circle.iter().map(String::as_str).collect();
            format!("a circle of files: {}", files.join(", "))
        });
        let in_circles: BTreeSet<&str> = circles.iter().flatten().map(String::as_str).collect();
        let opened = KNOWN.iter().flat_map(|files| files.iter());
        let opened = opened
            .filter(|file| !in_circles.contains(**file))
            .map(|file| format!("{file} is in no circle: take it out of xtask/src/circles.rs"));
        new.chain(opened).collect()
    }

    /// Sets of files each of which imports from each other one, directly or through others.
    fn circles(&self) -> Vec<BTreeSet<String>> {
        let arrows: BTreeMap<&String, BTreeSet<&String>> = self
            .paths
            .iter()
            .filter_map(|(key, paths)| {
                let to = paths.iter().filter_map(|path| self.file_of(key, path));
                Some((self.files.get(key)?, to.collect()))
            })
            .collect();
        let reached: BTreeMap<&String, BTreeSet<&String>> = arrows
            .keys()
            .map(|from| (*from, reached(from, &arrows)))
            .collect();
        let mut circles = BTreeSet::new();
        for (from, to) in &reached {
            let back = to.iter().filter(|to| reached[**to].contains(from));
            let circle: BTreeSet<String> = back.map(|file| (*file).clone()).collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// The file that an import of `from` names something of; `None` if it is the file itself or one
    /// of its ancestors.
    fn file_of(&self, from: &(String, Vec<String>), path: &[String]) -> Option<&String> {
        let known = (1..=path.len()).rev().find_map(|length| {
            let module = &path[..length];
            let file = self.files.get(&(from.0.clone(), module.to_vec()))?;
            Some((module, file))
        });
        let (module, file) = known?;
        (!from.1.starts_with(module)).then_some(file)
    }
}

/// All files that `from` leads to, itself only through others.
fn reached<'a>(
    from: &'a String,
    arrows: &BTreeMap<&'a String, BTreeSet<&'a String>>,
) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for to in arrows.get(at).into_iter().flatten() {
            if found.insert(*to) {
                open.push(to);
            }
        }
    }
    found
}

/// The paths, from the root of the crate, that the file of `module` imports outside of its tests.
fn imported(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line_start = code[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = code[line_start..at].trim();
        if !(before.is_empty() || before.starts_with("pub")) {
            continue;
        }
        let declaration = code[at + 4..].split(';').next().unwrap_or_default();
        let declaration: String = declaration.chars().filter(|c| !c.is_whitespace()).collect();
        let mut expanded = Vec::new();
        expand(&declaration, &mut Vec::new(), &mut expanded);
        let absolute = expanded.into_iter();
        paths.extend(absolute.filter_map(|path| absolute_path(&path, module)));
    }
    paths
}

/// Splits a tree such as `a::{b,c::d}` into its paths.
fn expand(tree: &str, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let (mut depth, mut start) = (0_u32, 0);
    let mut branches = Vec::new();
    for (at, character) in tree.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                branches.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&tree[start..]);
    for branch in branches.into_iter().filter(|branch| !branch.is_empty()) {
        let length = prefix.len();
        match branch.split_once('{') {
            Some((head, rest)) => {
                prefix.extend(parts(head));
                expand(rest.strip_suffix('}').unwrap_or(rest), prefix, paths);
            }
            None => {
                prefix.extend(parts(branch));
                paths.push(prefix.clone());
            }
        }
        prefix.truncate(length);
    }
}

fn parts(path: &str) -> impl Iterator<Item = String> {
    let parts = path.split("::").filter(|part| !part.is_empty());
    parts.map(|part| part.trim_start_matches("r#").to_owned())
}

/// A path as seen from the root of the crate; `None` if it names another crate.
fn absolute_path(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let (mut at, mut rest) = match path.split_first()? {
        (first, rest) if first == "crate" => (Vec::new(), rest),
        (first, rest) if first == "self" => (module.to_vec(), rest),
        (first, _) if first == "super" => (module.to_vec(), path),
        _ => return None,
    };
    while let Some((first, others)) = rest.split_first()
        && first == "super"
    {
        at.pop();
        rest = others;
    }
    at.extend(rest.iter().cloned());
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let mut imports = Imports::default();
        for (name, text) in files {
            imports.read(&format!("crates/a/src/{name}"), text);
        }
        imports
    }

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let circles = imports(files).circles().into_iter();
        circles.map(|files| files.into_iter().collect()).collect()
    }

    #[test]
    fn circles_are_found_however_imports_are_written() {
        for back in [
            "use crate::a::A;",
            "use super::a::A;",
            "pub(crate) use crate::{\n    c,\n    a::{A, AA as B},\n};",
            "fn f() {\n    use super::a::A;\n}",
        ] {
            let found = circles(&[("a.rs", "use crate::b::f;\n"), ("b.rs", back)]);
            assert_eq!(
                found,
                [["crates/a/src/a.rs", "crates/a/src/b.rs"]],
                "{back}"
            );
        }
        let three = [
            ("a.rs", "use crate::b::B;"),
            ("b/mod.rs", "use crate::c::d::D;"),
            ("c/d.rs", "use crate::a::A;"),
        ];
        assert_eq!(circles(&three)[0].len(), 3);
    }

    #[test]
    fn what_is_no_circle() {
        for (first, second) in [
            ("use crate::b::B;", "use std::fmt;"),
            ("use crate::b::B;", "use other::a::A;"),
            ("use crate::b::B;", "// use crate::a::A;\n"),
            (
                "use crate::b::B;",
                "\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
        ] {
            assert!(
                circles(&[("a.rs", first), ("b.rs", second)]).is_empty(),
                "{second}"
            );
        }
        // What siblings share stands in their parent.
        let parent = [("a.rs", "mod b;\nuse b::B;\n"), ("a/b.rs", "use super::A;")];
        assert!(circles(&parent).is_empty());
        let tests = [
            ("a.rs", "use crate::b::B;"),
            ("a/tests.rs", "use crate::a::A;"),
        ];
        assert!(circles(&tests).is_empty());
    }

    #[test]
    fn new_circles_are_faults_and_so_are_names_of_opened_ones() {
        let found = imports(&[("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")]);
        let faults = found.faults();
        assert_eq!(
            faults[0],
            "a circle of files: crates/a/src/a.rs, crates/a/src/b.rs"
        );
        let opened = faults
            .iter()
            .filter(|fault| fault.contains("is in no circle"));
        assert_eq!(
            opened.count(),
            KNOWN.iter().map(|files| files.len()).sum::<usize>()
        );
    }
}
