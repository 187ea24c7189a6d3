//! Tips for flags of other tools that have no meaning here, or another one.
//!
//! The parser's own tip, to pass the flag as a value, doesn't help users of rsync or rclone.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags that no command of copies has, and what does their work.
const UNKNOWN: &[(&[&str], &str)] = &[
    (
        &["-z", "--compress"],
        "--stack tcp,tls,zstd compresses, where the server listens so too: \
         --listen tcp,tls,zstd://HOST",
    ),
    (
        &["-P", "--progress", "--partial"],
        "progress is shown by itself, and the same command resumes what was interrupted",
    ),
    (
        &["-p", "--perms", "--times", "--preserve"],
        "modes and times are kept by themselves, modes from a server less the bits of the \
         umask; -a keeps exact modes, owners, extended attributes and hard links too",
    ),
    (
        &["--parallel", "--transfers", "--streams"],
        "-n sets the number of channels, over which all files go at once",
    ),
];
const RECURSIVE: &str = "directories are always synchronised with all their contents";
const DRY_RUN: &str = "a dry run is --dry-run; -n sets the number of channels";

/// Gives an error of a copy's command line the tip for a flag of another tool.
pub(crate) fn with_tip(command: &str, mut error: clap::Error) -> clap::Error {
    if !matches!(command, "cp" | "sync") {
        return error;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let is_of = |(flags, _): &&(&[&str], &str)| flags.contains(&flag.as_str());
    let tip = match error.kind() {
        ErrorKind::UnknownArgument
            if command == "sync" && matches!(&**flag, "-r" | "--recursive") =>
        {
            RECURSIVE
        }
        ErrorKind::UnknownArgument => match UNKNOWN.iter().find(is_of) {
            Some((_, tip)) => tip,
            None => return error,
        },
        ErrorKind::ValueValidation if flag.starts_with("--channels") => DRY_RUN,
        _ => return error,
    };
    for kind in [ContextKind::SuggestedArg, ContextKind::TrailingArg] {
        error.remove(kind);
    }
    let tips = vec![StyledStr::from(tip)];
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    error
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::Cli;

    fn said(words: &[&str]) -> String {
        let error = Cli::try_parse_from(words).unwrap_err();
        with_tip(words[1], error).to_string()
    }

    #[test]
    fn flags_of_other_tools_have_a_tip() {
        for (words, tip) in [
            (
                &["xdfs", "cp", "-z", "a", "lab:"][..],
                "--stack tcp,tls,zstd",
            ),
            (
                &["xdfs", "cp", "-P", "a", "lab:"],
                "progress is shown by itself",
            ),
            (
                &["xdfs", "sync", "--progress", "a", "lab:"],
                "progress is shown by itself",
            ),
            (
                &["xdfs", "sync", "-p", "a", "lab:"],
                "modes and times are kept",
            ),
            (&["xdfs", "sync", "-r", "a", "lab:"], "always synchronised"),
            (
                &["xdfs", "cp", "--parallel", "4", "a", "lab:"],
                "-n sets the number",
            ),
            (
                &["xdfs", "sync", "-n", "a", "lab:"],
                "a dry run is --dry-run",
            ),
        ] {
            let text = said(words);
            assert!(
                text.contains(&format!("tip: {tip}")) || text.contains(tip),
                "{text}"
            );
            assert!(!text.contains("as a value"), "{text}");
        }
        assert!(said(&["xdfs", "cp", "--unheard-of", "a"]).contains("as a value"));
    }
}
