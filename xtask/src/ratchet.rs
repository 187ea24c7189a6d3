//! Ratchets: what there is too much of, with ceilings that may only fall.
//!
//! Private words in comments, for each crate, and structs with many fields. A commit that lowers a
//! count lowers its ceiling too.

use std::collections::BTreeMap;

/// Words and phrases of a dialect: the field has terms for what they mean.
const PRIVATE_WORDS: [&str; 10] = [
    "tell",
    "tells",
    "told",
    "whoever",
    "nobody",
    "goes on",
    "begins anew",
    "of use",
    "has come",
    "as far as",
];

/// How many of them the comments of a crate have at most.
const WORDS_MAX: [(&str, usize); 15] = [
    ("xdfs", 61),
    ("xdfs-access", 1),
    ("xdfs-bench", 20),
    ("xdfs-cli", 45),
    ("xdfs-engine", 68),
    ("xdfs-gridftp", 281),
    ("xdfs-gsi", 31),
    ("xdfs-proto", 14),
    ("xdfs-security", 22),
    ("xdfs-sim", 22),
    ("xdfs-store", 15),
    ("xdfs-sys", 20),
    ("xdfs-testkit", 27),
    ("xdfs-xio", 87),
    ("xtask", 22),
];

/// Fields of a struct: one with more has several concepts.
const FIELDS_MAX: usize = 24;

/// Structs with more, and how many they have at most.
const LARGE_STRUCTS: [(&str, usize); 9] = [
    ("xdfs-cli::CpFlags", 33),
    ("xdfs-cli::SyncFlags", 26),
    ("xdfs-engine::Channel", 30),
    ("xdfs-engine::Pipeline", 35),
    ("xdfs-gridftp::Link", 25),
    ("xdfs-gridftp::Server", 26),
    ("xdfs-gridftp::Session", 30),
    ("xdfs-xio::Connection", 26),
    ("xdfs::Report", 27),
];

/// What was counted in the sources.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Private words, by crate.
    words: BTreeMap<String, usize>,
    /// Fields of structs with too many, by `CRATE::STRUCT`.
    fields: BTreeMap<String, usize>,
}

impl Counts {
    /// Counts in a file, if it is a source file outside of tests.
    pub(crate) fn read(&mut self, name: &str, text: &str) {
        let Some((folder, file)) = name.split_once("/src/") else {
            return;
        };
        let is_test = file.contains("tests/") || file.ends_with("tests.rs");
        if !file.ends_with(".rs") || is_test {
            return;
        }
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text);
        let folder = folder.strip_prefix("crates/").unwrap_or(folder);
        *self.words.entry(folder.to_owned()).or_default() += private_words(code);
        for (structure, count) in structs(code) {
            if count > FIELDS_MAX {
                self.fields.insert(format!("{folder}::{structure}"), count);
            }
        }
    }

    /// Counts above their ceilings, and ceilings above their counts.
    pub(crate) fn faults(&self) -> Vec<String> {
        let words = compare(&self.words, &WORDS_MAX.into(), "private words in comments");
        let fields = compare(&self.fields, &LARGE_STRUCTS.into(), "fields");
        [words, fields].concat()
    }
}

fn compare(
    counts: &BTreeMap<String, usize>,
    ceilings: &BTreeMap<&str, usize>,
    what: &str,
) -> Vec<String> {
    let counted = counts.iter().filter_map(move |(name, count)| {
        let most = ceilings.get(name.as_str()).copied().unwrap_or_default();
        (*count > most).then(|| format!("{name}: {count} {what}, at most {most}"))
    });
    let lowered = ceilings.iter().filter_map(move |(name, most)| {
        let count = counts.get(*name).copied().unwrap_or_default();
        let lower = format!("{name}: {count} {what}: lower the {most} in xtask/src/ratchet.rs");
        (count < *most).then_some(lower)
    });
    counted.chain(lowered).collect()
}

/// The number of private words in comments.
fn private_words(code: &str) -> usize {
    let comments = code.lines().filter_map(|line| line.split_once("//"));
    let comments: Vec<&str> = comments
        .map(|(_, comment)| comment.trim_start_matches(['/', '!']).trim())
        .collect();
    let words = comments.join(" ").to_lowercase();
    let words: Vec<&str> = words
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .collect();
    let starts = |at: usize, phrase: &str| {
        let mut following = words[at..].iter();
        phrase
            .split(' ')
            .all(|word| following.next() == Some(&word))
    };
    let found = |at: &usize| PRIVATE_WORDS.iter().any(|phrase| starts(*at, phrase));
    (0..words.len()).filter(found).count()
}

/// The names of structs with named fields, and the numbers of these.
fn structs(code: &str) -> Vec<(&str, usize)> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    let mut is_inside = false;
    for line in code.lines() {
        if is_inside {
            is_inside = line != "}";
            let field = line.strip_prefix("    ").unwrap_or_default();
            let field = match field.strip_prefix("pub") {
                Some(rest) => rest.trim_start_matches(|c: char| !c.is_whitespace()).trim(),
                None => field,
            };
            let name = field.split_once(": ").map_or("", |(name, _)| name);
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if !name.is_empty()
                && name.chars().all(is_name)
                && let Some((_, count)) = found.last_mut()
            {
                *count += 1;
            }
        } else if !line.starts_with(' ')
            && let Some((_, rest)) = line.split_once("struct ")
            && line.ends_with('{')
            && !line.starts_with("//")
        {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
            found.push((&rest[..end.unwrap_or(rest.len())], 0));
            is_inside = true;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_in_comments_only() {
        let code = "//! As he\n//! was told.\nfn told() {} // Nobody goes\n    // on of use.\n";
        assert_eq!(private_words(code), 4);
        assert_eq!(
            private_words("let told = \"nobody\";\n/// Retold, told's.\n"),
            0
        );
    }

    #[test]
    fn fields_are_counted() {
        let code = concat!(
            "pub(crate) struct A<T> {\n    /// A: one.\n    pub(crate) a: T,\n    b: u8,\n",
            "    pub c: u8,\n}\nstruct B(u8);\nstruct C {\n    d: Vec<(u8, u8)>,\n}\n",
            "fn f() {\n    let x: u8 = 1;\n}\n",
        );
        assert_eq!(structs(code), [("A", 3), ("C", 1)]);
    }

    #[test]
    fn counts_may_neither_rise_nor_stay_below_their_ceilings() {
        let ceilings = [("a", 2), ("b", 1)].into();
        let faults = |counts: &[(&str, usize)]| {
            let counts = counts
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            compare(&counts.collect(), &ceilings, "x").len()
        };
        assert_eq!(faults(&[("a", 2), ("b", 1), ("c", 0)]), 0);
        assert_eq!(faults(&[("a", 3), ("b", 0), ("c", 1)]), 3);
        assert_eq!(faults(&[("a", 2)]), 1);
    }
}
