//! The flags that leave out parts of trees. The order of the rules matters.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, ValueHint};
use xdfs::{Fault, FileLimits, Filter, FilterRule};

use super::FILTERS;
use crate::paths::time::parse_age;
use xdfs::settings::size::parse_size;

/// Which parts of a tree are left out: rules in the order of the command line, limits on files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterFlags {
    rules: Vec<FilterRule>,
    limits: FileLimits,
}

impl FilterFlags {
    /// The filter of these flags.
    ///
    /// # Errors
    /// A rule makes no sense, or a file of them can't be read.
    pub(crate) fn filter(&self) -> Result<Filter, Fault> {
        Filter::new(&self.rules).map(|filter| filter.with_limits(self.limits))
    }

    /// Whether none of these flags is given.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn pattern(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("PATTERN")
        .help_heading(FILTERS)
        .action(ArgAction::Append)
}

fn limit(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name)
        .long(name.replace('_', "-"))
        .value_name(value)
        .help_heading(FILTERS)
}

impl Args for FilterFlags {
    fn augment_args(command: Command) -> Command {
        command
            .arg(
                pattern("exclude")
                    .help("Exclude what matches a pattern in gitignore syntax")
                    .long_help(
                        "Exclude what matches a pattern in gitignore syntax: '*.o' anywhere, \
                         '/a/b' from the root of the tree, 'd/' for directories only, '**' for \
                         any number of directories.\n\nOf --exclude, --include and \
                         --filter-file, in the order of the command line, the last matching rule \
                         applies. The scan does not enter excluded directories. A SOURCE of 'xdfs \
                         cp' that is a file is chosen by its name, like an entry of the root. '?' \
                         and [...] match a byte, braces are characters, and a malformed pattern \
                         in a file matches nothing, all as for git.",
                    ),
            )
            .arg(
                pattern("include")
                    .help("Include what an earlier rule excludes")
                    .long_help(
                        "Include what an earlier rule excludes.\n\nThe directories above it have \
                         to be included too: the scan does not enter excluded ones.",
                    ),
            )
            .arg(
                Arg::new("filter_file")
                    .long("filter-file")
                    .value_name("FILE")
                    .value_hint(ValueHint::FilePath)
                    .value_parser(clap::value_parser!(PathBuf))
                    .action(ArgAction::Append)
                    .help_heading(FILTERS)
                    .help("Read rules from a file in gitignore syntax")
                    .long_help(
                        "Read rules from a file in gitignore syntax.\n\nA line is a pattern to \
                         exclude, or after '!' one to include; '#' begins a comment. Patterns are \
                         relative to the root of the tree, wherever the file is.",
                    ),
            )
            .arg(
                limit("min_size", "SIZE")
                    .value_parser(parse_size)
                    .help("Leave out files smaller than this")
                    .long_help(
                        "Leave out regular files smaller than this, such as 64K (65,536 \
                         bytes).\n\nA file of exactly this size isn't left out; so it is with \
                         --max-size, --min-age and --max-age. Directories and links have no \
                         limits. With 'sync --delete', what is left out at the target stays there; \
                         of a file on both sides the limits concern the source.",
                    ),
            )
            .arg(
                limit("max_size", "SIZE")
                    .value_parser(parse_size)
                    .help("Leave out files larger than this")
                    .long_help(
                        "Leave out files larger than this.\n\nIt concerns regular files only, as \
                         --min-size.",
                    ),
            )
            .arg(
                limit("min_age", "AGE")
                    .value_parser(parse_age)
                    .help("Leave out files modified less than this ago: 30s, 15m, 12h, 7d, 2w")
                    .long_help(
                        "Leave out files modified less than this ago: 30s, 15m, 12h, 7d, \
                         2w.\n\nSo files that are still being written are left to the next run.",
                    ),
            )
            .arg(
                limit("max_age", "AGE")
                    .value_parser(parse_age)
                    .help("Leave out files modified more than this ago")
                    .long_help(
                        "Leave out files modified more than this ago.\n\nThe age is that at the \
                         start of the command, by the clock of this machine.",
                    ),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FilterFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let mut rules = Vec::new();
        let texts = |id: &str| {
            let values = matches.get_many::<String>(id).unwrap_or_default().cloned();
            let places = matches.indices_of(id).unwrap_or_default();
            places.zip(values).collect::<Vec<_>>()
        };
        let of = |(place, text), rule: fn(String) -> FilterRule| (place, rule(text));
        rules.extend(
            texts("exclude")
                .into_iter()
                .map(|t| of(t, FilterRule::Exclude)),
        );
        rules.extend(
            texts("include")
                .into_iter()
                .map(|t| of(t, FilterRule::Include)),
        );
        let files = matches.get_many::<PathBuf>("filter_file");
        let places = matches.indices_of("filter_file").unwrap_or_default();
        let files = files.unwrap_or_default().cloned().map(FilterRule::File);
        rules.extend(places.zip(files));
        rules.sort_by_key(|(place, _)| *place);
        self.rules = rules.into_iter().map(|(_, rule)| rule).collect();
        self.limits = FileLimits {
            size_min: matches.get_one("min_size").copied(),
            size_max: matches.get_one("max_size").copied(),
            age_min: matches.get_one("min_age").copied(),
            age_max: matches.get_one("max_age").copied(),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_command_line_is_kept() {
        let command = FilterFlags::augment_args(Command::new("x"));
        let words = "x --include a --exclude b --filter-file c --exclude d --include e";
        let matches = command.get_matches_from(words.split(' '));
        let flags = FilterFlags::from_arg_matches(&matches).unwrap();
        let text = |t: &str| t.to_owned();
        assert_eq!(
            flags.rules,
            [
                FilterRule::Include(text("a")),
                FilterRule::Exclude(text("b")),
                FilterRule::File("c".into()),
                FilterRule::Exclude(text("d")),
                FilterRule::Include(text("e")),
            ]
        );
    }
}
