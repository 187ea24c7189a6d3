//! The roles of the words of a line: flags, values and paths, and the side of each path.
//!
//! Roles follow from the definition of the flags; only the sides are defined here. The command's
//! parser has the final say.

use clap::{Arg, Command, Id};

use xdfs::words::Word;

use crate::flags::is_find_test;

/// The side of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Remote if it starts with a colon, otherwise local.
    Either,
    /// On this machine.
    Local,
    /// Not a path.
    Text,
    /// On the server.
    Remote,
}

/// The role of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The name of the command.
    Command,
    /// A flag, with its value if that is in the same word.
    Flag,
    /// An operand.
    Operand(Side),
    /// The value of the flag before it.
    Value(Id),
}

/// Rewrites the tests of `find` as long flags.
pub(crate) fn with_long_tests(mut words: Vec<Word>) -> Vec<Word> {
    if words.first().is_some_and(|word| word.bytes == b"find") {
        for word in &mut words[1..] {
            if is_find_test(&word.bytes) {
                word.bytes.insert(0, b'-');
            }
        }
    }
    words
}

/// The roles of the words; `definition` is that of the command, if it has one.
pub(crate) fn roles(definition: Option<&Command>, words: &[Word]) -> Vec<Role> {
    let mut roles = Vec::with_capacity(words.len());
    let mut value_of: Option<Id> = None;
    let mut flags_end = definition.is_none();
    let mut symbolic = false;
    for (at, word) in words.iter().enumerate() {
        let bytes = word.bytes.as_slice();
        roles.push(if at == 0 {
            Role::Command
        } else if let Some(id) = value_of.take() {
            Role::Value(id)
        } else if flags_end || !bytes.starts_with(b"-") || bytes == b"-" {
            // The side is set once all operands are counted.
            Role::Operand(Side::Text)
        } else {
            let definition = definition.into_iter();
            let args: Vec<&Arg> = definition.flat_map(Command::get_arguments).collect();
            if bytes == b"--" {
                flags_end = true;
            } else if let Some(long) = bytes.strip_prefix(b"--") {
                symbolic |= long == b"symbolic";
                if !long.contains(&b'=') {
                    value_of = long_flag(&args, long).filter(|arg| takes(arg)).map(id);
                }
            } else {
                value_of = short_flags(&args, &bytes[1..], &mut symbolic);
            }
            Role::Flag
        });
    }
    let name = words.first().map_or(&b""[..], |word| &word.bytes);
    let count = roles.iter().filter(|role| is_operand(role)).count();
    let operands = roles.iter_mut().filter(|role| is_operand(role));
    for (at, role) in operands.enumerate() {
        *role = Role::Operand(side(name, at, count, symbolic));
    }
    roles
}

fn is_operand(role: &Role) -> bool {
    matches!(role, Role::Operand(_))
}

fn id(arg: &Arg) -> Id {
    arg.get_id().clone()
}

fn takes(arg: &Arg) -> bool {
    // Such a value is in the same word.
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn long_flag<'a>(args: &[&'a Arg], name: &[u8]) -> Option<&'a Arg> {
    let has = |arg: &&&Arg| arg.get_long().is_some_and(|long| long.as_bytes() == name);
    args.iter().find(has).copied()
}

/// Parses short flags in one word; returns the flag whose value is the next word.
fn short_flags(args: &[&Arg], letters: &[u8], symbolic: &mut bool) -> Option<Id> {
    for (at, &letter) in letters.iter().enumerate() {
        *symbolic |= letter == b's';
        let has = |arg: &&&Arg| {
            let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
            shorts.contains(&char::from(letter))
        };
        if let Some(arg) = args.iter().find(has)
            && takes(arg)
        {
            return (at + 1 == letters.len()).then(|| id(arg));
        }
    }
    None
}

/// Index of the target: the last operand of a command that has a target.
pub(crate) fn target(command: &[u8], roles: &[Role]) -> Option<usize> {
    let last = roles.iter().rposition(is_operand)?;
    let count = roles.iter().filter(|role| is_operand(role)).count();
    match command {
        b"check" | b"cp" | b"ln" | b"mv" | b"sync" => Some(last),
        // The target may be omitted.
        b"get" | b"put" if count > 1 => Some(last),
        _ => None,
    }
}

/// The side of the operand at `index`, of `count` operands.
fn side(command: &[u8], index: usize, count: usize, symbolic: bool) -> Side {
    let is_target = count > 1 && index + 1 == count;
    match command {
        b"check" | b"cp" | b"sync" => Side::Either,
        b"put" if is_target => Side::Remote,
        b"put" | b"lcd" => Side::Local,
        b"get" if is_target => Side::Local,
        b"chmod" | b"chown" if index == 0 => Side::Text,
        b"ln" if symbolic && !is_target => Side::Text,
        b"exit" | b"help" | b"history" | b"lpwd" | b"pwd" | b"quit" => Side::Text,
        _ => Side::Remote,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::flags::Cli;
    use xdfs::words::split;

    /// A letter for each word.
    fn letters(line: &str) -> String {
        let mut cli = Cli::command();
        cli.build();
        let words = with_long_tests(split(line.as_bytes()).unwrap());
        let name = String::from_utf8(words[0].bytes.clone()).unwrap();
        let roles = roles(cli.find_subcommand(&name), &words);
        let letter = |role: &Role| match role {
            Role::Command => 'c',
            Role::Flag => 'f',
            Role::Value(_) => 'v',
            Role::Operand(Side::Either) => 'e',
            Role::Operand(Side::Local) => 'h',
            Role::Operand(Side::Text) => 'x',
            Role::Operand(Side::Remote) => 't',
        };
        roles.iter().map(letter).collect()
    }

    #[test]
    fn words_are_told_apart_by_the_definition_of_the_flags() {
        for (line, expected) in [
            ("ls -l a b", "cftt"),
            ("ls -- -l", "cft"),
            ("ls --color a", "cft"),
            ("find a -name *.x -size -1k -print0", "ctfvfvf"),
            ("find --name=*.x a", "cft"),
            ("put a", "ch"),
            ("put -r a b c", "cfhht"),
            ("put -n 4 --digest blake3 a b", "cfvfvht"),
            ("put -n4 a b", "cfht"),
            ("put -rfn 4 a b", "cfvht"),
            ("get a", "ct"),
            ("get a b c", "ctth"),
            ("get a -", "cth"),
            ("cp a :b", "cee"),
            ("sync --exclude *.o a :b", "cfvee"),
            ("check a :b", "cee"),
            ("chmod -R u+x a", "cfxt"),
            ("chmod -- -x a", "cfxt"),
            ("chown -h 1:2 a b", "cfxtt"),
            ("ln a b", "ctt"),
            ("ln -sf a b", "cfxt"),
            ("ln -s a b c", "cfxxt"),
            ("ln a b c", "cttt"),
            ("ln --symbolic a b", "cfxt"),
            ("touch -r a b", "cfvt"),
            ("truncate -s -1K a", "cfvt"),
            ("cd -", "ct"),
            ("lcd a", "ch"),
            ("help ls", "cx"),
        ] {
            assert_eq!(letters(line), expected, "{line}");
        }
    }
}
