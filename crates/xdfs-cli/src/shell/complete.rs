//! Completion: commands, flags, values of flags, and remote and local paths.
//!
//! A directory is listed within the bounds of [`crate::candidates`]; nothing is inserted from an
//! incomplete listing, since it could be wrong. Listings are cached for some seconds, at most until
//! the next command.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Arg, Command, ValueHint};
use rustyline::completion::Pair;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use xdfs::words::{Word, escaped, lines, split_unfinished};
use xdfs::{FileKind, Quoting};

use super::operands::{Role, Side, roles, with_long_tests};
use super::paths::{Roots, absolute, trimmed};
use super::{COMMANDS, OWN, local_path};
use crate::candidates::{Listed, Name, kind_on_server, within};
use crate::context::ShellSession;

/// Lifetime of a cached listing.
const FRESH: Duration = Duration::from_secs(10);
/// Most cached names of a directory.
const NAMES_KEPT_MAX: usize = 10_000;
/// Most cached directories.
const KEPT_MAX: usize = 16;
/// Most names shown.
const SHOWN_MAX: usize = 500;

/// The helper of the line editor.
pub(super) struct Helper(pub(super) std::rc::Rc<Completer>);

impl rustyline::Helper for Helper {}
impl Highlighter for Helper {}
impl Validator for Helper {}

impl Hinter for Helper {
    type Hint = String;
}

impl rustyline::completion::Completer for Helper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let line = line.get(..at).unwrap_or(line);
        Ok(self.0.complete(line).unwrap_or((at, Vec::new())))
    }
}

/// Completes lines in the shell's directory, with cached listings.
pub(super) struct Completer {
    session: Arc<ShellSession>,
    definition: Command,
    directory: RefCell<Vec<u8>>,
    listed: RefCell<Directories>,
    /// Shared with the thread that asks the server, while there is one.
    asking: Arc<()>,
}

/// Cached listings by path, with their times.
type Directories = HashMap<Vec<u8>, (Instant, Arc<Listed>)>;

impl Completer {
    pub(super) fn new(session: &Arc<ShellSession>, definition: Command) -> Self {
        Self {
            session: Arc::clone(session),
            definition,
            directory: RefCell::new(b"/".to_vec()),
            listed: RefCell::default(),
            asking: Arc::default(),
        }
    }

    /// Changes the working directory on the server.
    pub(super) fn enter(&self, directory: &[u8]) {
        *self.directory.borrow_mut() = directory.to_vec();
    }

    /// Clears the cache.
    pub(super) fn forget(&self) {
        self.listed.borrow_mut().clear();
    }

    /// The start of the text to replace, and its possible replacements.
    fn complete(&self, line: &str) -> Option<(usize, Vec<Pair>)> {
        let last = lines(line).pop()?;
        let before = line.len() - last.len();
        let words = with_long_tests(split_unfinished(last.as_bytes())?);
        let word = words.last()?;
        let name = String::from_utf8_lossy(&words.first()?.bytes).into_owned();
        let known = COMMANDS.contains(&name.as_str());
        let definition = known
            .then(|| self.definition.find_subcommand(&name))
            .flatten();
        let pairs = match roles(definition, &words).pop()? {
            Role::Command => {
                let all = COMMANDS.iter().chain(&OWN).map(|name| (*name).to_owned());
                among(all.collect(), &word.bytes)
            }
            Role::Flag => among(flags(definition?), &word.bytes),
            Role::Operand(_) if word.bytes == b"-" => among(flags(definition?), b"-"),
            Role::Operand(Side::Text) if name == "help" => {
                among(COMMANDS.map(String::from).to_vec(), &word.bytes)
            }
            Role::Operand(side) => self.paths(side, word)?,
            Role::Value(id) => {
                let arg = definition?
                    .get_arguments()
                    .find(|arg| *arg.get_id() == id)?;
                self.values(arg, word)?
            }
        };
        Some((before + word.start, pairs))
    }

    fn values(&self, arg: &Arg, word: &Word) -> Option<Vec<Pair>> {
        let values = arg.get_possible_values();
        if !values.is_empty() {
            let shown = values.iter().filter(|value| !value.is_hide_set());
            let names = shown.map(|value| value.get_name().to_owned());
            return Some(among(names.collect(), &word.bytes));
        }
        match arg.get_value_hint() {
            ValueHint::AnyPath => self.paths(Side::Either, word),
            ValueHint::FilePath | ValueHint::DirPath => self.paths(Side::Local, word),
            _ => None,
        }
    }

    fn paths(&self, side: Side, word: &Word) -> Option<Vec<Pair>> {
        let bytes = word.bytes.as_slice();
        let (is_there, mark, path) = match (side, bytes.strip_prefix(b":")) {
            (Side::Text, _) => return None,
            (Side::Remote, _) => (true, &b""[..], bytes),
            (Side::Either, Some(path)) => (true, &b":"[..], path),
            _ => (false, &b""[..], bytes),
        };
        let at = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (directory, begin) = path.split_at(at);
        let listed = if is_there {
            self.list_there(directory)?
        } else {
            list_here(directory)?
        };
        let mut names = listed.matching(begin);
        if let [name] = names.as_mut_slice()
            && name.kind == FileKind::Symlink
            && is_there
        {
            name.kind = self.kind_there(&[directory, &name.bytes].concat())?;
        }
        Some(pairs(
            &names,
            listed.is_whole,
            &[mark, directory].concat(),
            begin,
        ))
    }

    /// The result of `act` if it comes in time.
    fn ask<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if Arc::strong_count(&self.asking) > 1 {
            // An earlier thread still waits for the server.
            return None;
        }
        let asking = Arc::clone(&self.asking);
        within(move || {
            let answer = act();
            drop(asking);
            answer
        })
    }

    fn absolute(&self, path: &[u8]) -> Option<Vec<u8>> {
        let path = if path.is_empty() { b"." } else { path };
        let roots = Roots::of(self.session.place());
        let path = absolute(&self.directory.borrow(), path, roots);
        path.ok().map(trimmed)
    }

    fn list_there(&self, directory: &[u8]) -> Option<Arc<Listed>> {
        let path = self.absolute(directory)?;
        if let Some((when, listed)) = self.listed.borrow().get(&path)
            && when.elapsed() < FRESH
        {
            return Some(Arc::clone(listed));
        }
        let client = self.session.open_session()?;
        let asked = path.clone();
        let listed = self.ask(move || Listed::on_server(&client, &asked))?;
        let listed = Arc::new(listed);
        if listed.is_whole && listed.names.len() <= NAMES_KEPT_MAX {
            let mut kept = self.listed.borrow_mut();
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            kept.insert(path, (Instant::now(), Arc::clone(&listed)));
        }
        Some(listed)
    }

    fn kind_there(&self, path: &[u8]) -> Option<FileKind> {
        let path = self.absolute(path)?;
        let client = self.session.open_session()?;
        self.ask(move || kind_on_server(&client, path))
    }
}

fn list_here(directory: &[u8]) -> Option<Arc<Listed>> {
    let path = if directory.is_empty() {
        b"."
    } else {
        directory
    };
    let entries = std::fs::read_dir(local_path(path).ok()?).ok()?;
    let names = entries.flatten().map(|entry| {
        let is_directory = entry.path().is_dir();
        Ok::<_, Infallible>(Name {
            bytes: entry.file_name().as_encoded_bytes().to_vec(),
            kind: if is_directory {
                FileKind::Directory
            } else {
                FileKind::File
            },
        })
    });
    Some(Arc::new(Listed::read(names)))
}

/// The completions for `names`, which all start with `begin`, in a directory.
fn pairs(names: &[Name], is_whole: bool, directory: &[u8], begin: &[u8]) -> Vec<Pair> {
    let word = |name: &[u8]| {
        let path = [directory, name].concat();
        // A name must not look like a flag.
        let before = if path.starts_with(b"-") { "./" } else { "" };
        format!("{before}{}", escaped(&path))
    };
    if let [only] = names
        && is_whole
    {
        let end = if only.kind == FileKind::Directory {
            '/'
        } else {
            ' '
        };
        let replacement = format!("{}{end}", word(&only.bytes));
        let display = replacement.clone();
        return vec![Pair {
            display,
            replacement,
        }];
    }
    let common = if is_whole { common_start(names) } else { begin };
    let replacement = word(common);
    let mut pairs: Vec<Pair> = names
        .iter()
        .take(SHOWN_MAX)
        .map(|name| {
            let end = if name.kind == FileKind::Directory {
                "/"
            } else {
                ""
            };
            Pair {
                display: format!("{}{end}", Quoting::Plain.text(&name.bytes)),
                replacement: replacement.clone(),
            }
        })
        .collect();
    if !is_whole || names.len() > SHOWN_MAX {
        pairs.push(Pair {
            display: "...".into(),
            replacement,
        });
        // A single pair would be inserted as the only match.
        if let [only] = pairs.as_slice() {
            pairs.push(only.clone());
        }
    }
    pairs
}

/// The common prefix, in whole characters.
fn common_start(names: &[Name]) -> &[u8] {
    let Some((first, others)) = names.split_first() else {
        return &[];
    };
    let mut length = first.bytes.len();
    for other in others {
        let same = first
            .bytes
            .iter()
            .zip(&other.bytes)
            .take_while(|(a, b)| a == b);
        length = length.min(same.count());
    }
    // Characters aren't split.
    while length > 0
        && first
            .bytes
            .get(length)
            .is_some_and(|byte| byte & 0xc0 == 0x80)
    {
        length -= 1;
    }
    &first.bytes[..length]
}

/// The members of `all` that start with the typed text.
fn among(mut all: Vec<String>, typed: &[u8]) -> Vec<Pair> {
    all.sort();
    all.retain(|text| text.as_bytes().starts_with(typed));
    let only = all.len() == 1;
    let pair = |text: String| Pair {
        replacement: if only {
            format!("{text} ")
        } else {
            text.clone()
        },
        display: text,
    };
    all.into_iter().map(pair).collect()
}

fn flags(definition: &Command) -> Vec<String> {
    let args = definition.get_arguments().filter(|arg| !arg.is_hide_set());
    let long = args.filter_map(|arg| arg.get_long());
    long.map(|long| format!("--{long}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[(&str, FileKind)]) -> Listed {
        let names = names.iter().map(|(name, kind)| Name {
            bytes: name.as_bytes().to_vec(),
            kind: *kind,
        });
        Listed {
            names: names.collect(),
            is_whole: true,
        }
    }

    fn replacements(names: &[(&str, FileKind)], directory: &str, begin: &str) -> Vec<String> {
        let listed = listed(names);
        let names = listed.matching(begin.as_bytes());
        let pairs = pairs(&names, true, directory.as_bytes(), begin.as_bytes());
        pairs.into_iter().map(|pair| pair.replacement).collect()
    }

    #[test]
    fn one_name_is_completed_with_what_follows_it() {
        use FileKind::{Directory, File};
        let names = [
            ("a b", File),
            ("dir", Directory),
            (".h", File),
            ("-x", File),
        ];
        assert_eq!(replacements(&names, "", "a"), ["a\\ b "]);
        assert_eq!(replacements(&names, "x y/", "d"), ["x\\ y/dir/"]);
        assert_eq!(replacements(&names, "", ".h"), [".h "]);
        assert_eq!(replacements(&names, "", "-"), ["./-x "]);
        assert_eq!(replacements(&names, "", "z"), [""; 0]);
    }

    #[test]
    fn several_names_are_completed_as_far_as_they_agree() {
        use FileKind::File;
        let names = [("run 1", File), ("run 2", File), (".run", File)];
        assert_eq!(replacements(&names, "", ""), ["run\\ "; 2]);
        let names = [("\u{fc}", File), ("\u{e4}", File)];
        assert_eq!(replacements(&names, "d/", ""), ["d/"; 2]);
    }

    #[test]
    fn nothing_is_inserted_for_a_directory_that_was_not_read_to_its_end() {
        let mut listed = listed(&[("abc", FileKind::File)]);
        listed.is_whole = false;
        let names = listed.matching(b"a");
        let pairs = pairs(&names, false, b"", b"a");
        let texts: Vec<_> = pairs.iter().map(|pair| pair.replacement.as_str()).collect();
        assert_eq!(texts, ["a", "a"]);
        assert_eq!(pairs[1].display, "...");
    }

    #[test]
    fn words_are_completed_among_those_that_begin_so() {
        let all = || vec!["cp".to_owned(), "cat".into(), "cd".into()];
        let texts = |typed: &[u8]| -> Vec<String> {
            among(all(), typed)
                .into_iter()
                .map(|pair| pair.replacement)
                .collect()
        };
        assert_eq!(texts(b"ca"), ["cat "]);
        assert_eq!(texts(b"c"), ["cat", "cd", "cp"]);
        assert_eq!(texts(b"x"), [""; 0]);
    }
}
