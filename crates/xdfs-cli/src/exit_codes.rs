//! The exit codes of the program, for help, man pages and docs/exit-codes.md.
//!
//! The codes come from the library's faults ([`Code::ALL`]); this file has the text for each group.
//! A test compares the document with this table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use xdfs::Code;

/// Exit code of success.
pub(crate) const SUCCESS: u8 = 0;

/// Exit code of comparisons that found a difference; no fault leads to it.
pub(crate) const DIFFERENT: u8 = 18;

/// A row: an exit code, its meaning, and the fault codes that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The exit code.
    pub(crate) exit: u8,
    /// Its meaning, in a few words.
    pub(crate) meaning: &'static str,
    /// The values of `code` in a JSON error.
    pub(crate) codes: Vec<&'static str>,
}

fn meaning(exit: u8) -> &'static str {
    match exit {
        SUCCESS => "everything was done",
        1 => "internal error, please report it",
        2 => "invalid command line or setting",
        3 => "the server can't be reached, or the connection was lost for good",
        4 => "no such file or directory",
        5 => "access refused",
        6 => "the source or the target is unsuitable",
        7 => "no space left at the target",
        8 => "the data that arrived differs from the data that was sent",
        9 => "the source changed while it was being read",
        10 => "protocol error, or a limit was exceeded",
        11 => "timed out waiting for the other side",
        12 => "the file is in use or locked",
        13 => "the server is shutting down",
        14 => "the operation is not supported",
        15 => "input/output error",
        16 => "authentication failed",
        17 => "the server is not trusted, or the requested protection is not available",
        DIFFERENT => "a comparison found a difference (`check`, `verify-manifest`, `sum -c`)",
        130 => "stopped by the user",
        _ => "",
    }
}

/// All rows, in the order of the exit codes.
pub(crate) fn table() -> Vec<Row> {
    let mut rows: BTreeMap<u8, Vec<&'static str>> =
        BTreeMap::from([(SUCCESS, Vec::new()), (DIFFERENT, Vec::new())]);
    for code in Code::ALL {
        rows.entry(code.exit_code())
            .or_default()
            .push(code.as_str());
    }
    rows.into_iter()
        .map(|(exit, codes)| Row {
            exit,
            meaning: meaning(exit),
            codes,
        })
        .collect()
}

/// The section at the end of `xdfs --help`.
pub(crate) fn help_section() -> String {
    let mut text = String::from("Exit codes:\n");
    for row in table() {
        // Writing to a string can't fail.
        let _ = writeln!(text, "  {:>3}  {}", row.exit, row.meaning);
    }
    text.push_str("\nWhen several files fail, the exit code is that of the first failure.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the table in docs/exit-codes.md.
    fn markdown() -> String {
        let mut text = String::from("| exit code | meaning | `code` in JSON |\n|---:|---|---|\n");
        for row in table() {
            let codes: Vec<String> = row.codes.iter().map(|c| format!("`{c}`")).collect();
            let _ = writeln!(
                text,
                "| {} | {} | {} |",
                row.exit,
                row.meaning,
                codes.join(", ")
            );
        }
        text
    }

    #[test]
    fn every_exit_code_has_a_meaning() {
        for row in table() {
            assert!(
                !row.meaning.is_empty(),
                "exit code {} has no words",
                row.exit
            );
        }
    }

    #[test]
    fn the_document_says_the_same() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
        let document = std::fs::read_to_string(path).unwrap();
        assert!(
            document.contains(&markdown()),
            "docs/exit-codes.md has to contain this table:\n\n{}",
            markdown()
        );
    }
}
