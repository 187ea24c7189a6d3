//! Completion of paths on servers in the shells of the system: `xdfs complete-paths LINE`, which
//! the scripts of [`crate::generate`] call and the help doesn't show.
//!
//! The line is that of one command, as typed up to the cursor. If its last word names a place on a
//! server, the answer is that word without quotes, and below it for each candidate what follows the
//! word: percent-encoded, so that no shell interprets it, with a slash at the end of a directory.
//! Otherwise there is no answer, and the shell completes the word itself.
//!
//! The user has not started a command yet. So this asks and writes nothing, trusts no new server
//! ([`Attendance::Unattended`]), starts nothing through ssh, ends in less than two seconds,
//! and reports no failure: then there are no candidates. Only an ssh-agent (`--agent`) may ask, for
//! keys whose every use its user wants to confirm.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Args as _, Command, CommandFactory as _, FromArgMatches as _, value_parser};
use xdfs::operations::path::local_name;
use xdfs::security::KnownHosts;
use xdfs::settings::{Attendance, ClientConfig, UserFolder};
use xdfs::words::{Word, split_foreign};
use xdfs::{Client, ClientOptions, DEFAULT_PORT, FileKind, RemotePlace};

use crate::candidates::{Listed, Name, kind_on_server, within};
use crate::exit_codes::SUCCESS;
use crate::flags::{self, Cli, SecurityFlags};
use crate::place::Place;
use crate::report::print;

/// The name of the command.
pub(crate) const COMMAND: &str = "complete-paths";

/// Most candidates: more than anybody reads, and what shells handle in no time.
const CANDIDATES_MAX: usize = 1000;

/// Answers to a line, and returns the exit code.
pub(crate) fn run(line: &OsStr) -> u8 {
    if let Some(answer) = answer(line) {
        // Nobody would see the failure.
        let _ = print(answer);
    }
    SUCCESS
}

fn answer(line: &OsStr) -> Option<String> {
    let words = split_foreign(line.as_encoded_bytes())?;
    let word = String::from_utf8(words.last()?.bytes.clone()).ok()?;
    let config = ClientConfig::read().ok()?;
    // The answer has a line for it.
    if !config.is_remote(OsStr::new(&word)) || word.contains(char::is_control) {
        return None;
    }
    let mut answer = format!("{word}\n");
    let candidates = within(move || match host_start(&word) {
        Some(start) => hosts(start),
        None => names(&config, &word, &words),
    });
    for rest in candidates.flatten().unwrap_or_default() {
        answer.push_str(&rest);
        answer.push('\n');
    }
    Some(answer)
}

/// The place on a server that a word names.
fn place_of(config: &ClientConfig, word: &str) -> Option<RemotePlace> {
    match Place::parse(config, OsStr::new(word)) {
        Ok(Place::Remote(place)) => Some(place),
        _ => None,
    }
}

/// The start of a host, if the word is a URL that ends in it.
fn host_start(word: &str) -> Option<&str> {
    let authority = word.strip_prefix("xdfs://")?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
    (!authority.contains('/')).then_some(host)
}

/// What follows `start` in the URLs of known hosts.
fn hosts(start: &str) -> Option<Vec<String>> {
    let known = KnownHosts::load(&UserFolder::find().ok()?.known_hosts()).ok()?;
    let mut rests: Vec<String> = known
        .list()
        .filter_map(|known| host_rest(&known.host, start))
        .collect();
    rests.sort();
    rests.dedup();
    Some(rests)
}

/// What follows `start` in the URL of a known host, which has a port.
fn host_rest(known: &str, start: &str) -> Option<String> {
    // The names of Unix sockets can't be read back.
    if known.ends_with(":0") {
        return None;
    }
    let short = known.strip_suffix(&format!(":{DEFAULT_PORT}"));
    let mut texts = [short, Some(known)].into_iter().flatten();
    let rest = texts.find_map(|host| host.strip_prefix(start))?;
    Some(format!("{rest}/"))
}

/// What follows the word in the URLs of names on its server.
fn names(config: &ClientConfig, word: &str, words: &[Word]) -> Option<Vec<String>> {
    let typed = TypedPath::parse(config, word)?;
    let login = security_flags(words)?.login();
    let login = config.login(&typed.directory, &login).ok()?;
    let options = ClientOptions {
        channels: Some(1),
        ..ClientOptions::default()
    };
    let attendance = Attendance::Unattended;
    let options = login.options(&typed.directory, options, attendance).ok()?;
    let client = Client::connect(&typed.directory, options).ok()?;
    let listed = Listed::on_server(&client, &typed.directory.path);
    if !listed.is_whole {
        return None;
    }
    let mut names = bounded(listed.matching(&typed.start));
    if let [name] = names.as_mut_slice()
        && name.kind == FileKind::Symlink
    {
        name.kind = kind_on_server(&client, typed.path_of(name));
    }
    let rests = names.iter().filter_map(|name| typed.rest(name));
    Some(rests.collect())
}

/// At most [`CANDIDATES_MAX`] of the sorted names. The last one stays: what it has in common with
/// the first is what all have, and shells insert that.
fn bounded(mut names: Vec<Name>) -> Vec<Name> {
    if names.len() > CANDIDATES_MAX {
        names.drain(CANDIDATES_MAX - 1..names.len() - 1);
    }
    names
}

/// A word that ends in a path on a server.
#[derive(Debug)]
struct TypedPath<'a> {
    config: &'a ClientConfig,
    /// The word up to an unfinished escape.
    text: &'a str,
    /// A percent sign without both of its digits. A shell inserts one if names differ in the next.
    escape: &'a str,
    /// The path up to its last slash.
    directory: RemotePlace,
    /// The start of a name in the directory.
    start: Vec<u8>,
}

impl<'a> TypedPath<'a> {
    /// `None` if no path on a server that takes sessions ends the word.
    fn parse(config: &'a ClientConfig, word: &'a str) -> Option<Self> {
        let last = word.len().saturating_sub(2);
        let escape = word.as_bytes()[last..].iter().position(|&b| b == b'%');
        let (text, escape) = word.split_at(escape.map_or(word.len(), |at| last + at));
        let mut directory = place_of(config, text)?;
        if directory.address.is_of_ssh() || directory.invitation != Default::default() {
            return None;
        }
        let slash = directory.path.iter().rposition(|&b| b == b'/')?;
        let start = directory.path.split_off(slash + 1);
        Some(Self {
            config,
            text,
            escape,
            directory,
            start,
        })
    }

    fn path_of(&self, name: &Name) -> Vec<u8> {
        [self.directory.path.as_slice(), &name.bytes].concat()
    }

    /// What follows the word in the URL of the name; `None` if no URL can have it there.
    fn rest(&self, name: &Name) -> Option<String> {
        let is_directory = name.kind == FileKind::Directory;
        let slash = if is_directory { "/" } else { "" };
        let rest = RemotePlace::percent_encoded(name.bytes.strip_prefix(&*self.start)?) + slash;
        let (escape, after) = rest.split_at_checked(self.escape.len())?;
        // Such as `mem:`, which begins the names of built-in stores.
        let path = [self.path_of(name).as_slice(), slash.as_bytes()].concat();
        let leads_there = place_of(self.config, &format!("{}{rest}", self.text))?.path == path;
        (leads_there && escape.eq_ignore_ascii_case(self.escape)).then(|| after.to_owned())
    }
}

/// The security flags of a line. `None` if it has none that can be relied on, or the command has no
/// session with a server.
fn security_flags(words: &[Word]) -> Option<SecurityFlags> {
    let home = std::env::home_dir();
    let line: Option<Vec<OsString>> = words
        .iter()
        .map(|word| expanded(local_name(&word.bytes)?.as_os_str(), home.as_deref()))
        .collect();
    let line = flags::words(line?.into_iter());
    let matches = lenient(Cli::command()).try_get_matches_from(line).ok()?;
    let mut matches = &matches;
    while let Some((_, below)) = matches.subcommand() {
        matches = below;
    }
    matches.try_contains_id("known_only").ok()?;
    SecurityFlags::from_arg_matches(matches).ok()
}

/// A word with the home directory for a tilde, as a shell would expand it.
fn expanded(word: &OsStr, home: Option<&Path>) -> Option<OsString> {
    match Path::new(word).strip_prefix("~") {
        Ok(below) => Some(home?.join(below).into_os_string()),
        Err(_) => Some(word.to_owned()),
    }
}

/// The command for lines that aren't finished: no operand is required, and only the values of
/// security flags are checked. Others may be variables.
fn lenient(command: Command) -> Command {
    let security = SecurityFlags::augment_args(Command::new("security"));
    let is_security = |arg: &clap::Arg| {
        let mut own = security.get_arguments();
        own.any(|own| own.get_id() == arg.get_id())
    };
    command.mut_subcommands(lenient).mut_args(|arg| {
        if is_security(&arg) || !arg.get_action().takes_values() {
            return arg;
        }
        let many = arg.get_num_args().is_some_and(|n| n.min_values() > 1);
        let arg = if many { arg.num_args(1..) } else { arg };
        arg.required(false).value_parser(value_parser!(OsString))
    })
}

#[cfg(test)]
mod tests {
    use xdfs::settings::ConfigText;

    use super::*;

    fn name(bytes: impl AsRef<[u8]>, kind: FileKind) -> Name {
        let bytes = bytes.as_ref().to_vec();
        Name { bytes, kind }
    }

    fn file(bytes: impl AsRef<[u8]>) -> Name {
        name(bytes, FileKind::File)
    }

    #[test]
    fn a_word_is_the_start_of_a_host_or_of_a_name_in_a_directory() {
        let none = ClientConfig::default();
        for (word, start) in [
            ("xdfs://", Some("")),
            ("xdfs://ho", Some("ho")),
            ("xdfs://me@ho", Some("ho")),
            ("xdfs://[::1]:2", Some("[::1]:2")),
            ("xdfs://host/", None),
            ("xdfs+unix://", None),
            ("ssh://ho", None),
        ] {
            assert_eq!(host_start(word), start, "{word}");
        }
        for (word, directory, start, escape) in [
            ("xdfs://h/", "/", &b""[..], ""),
            ("xdfs://h/ru", "/", b"ru", ""),
            ("xdfs://me@h:1/a/b%20c/x", "/a/b c/", b"x", ""),
            ("xdfs://h/a/%41%2Fx", "/a/A/", b"x", ""),
            ("xdfs://h/gr%C3", "/", b"gr\xc3", ""),
            ("xdfs://h/gr%C3%", "/", b"gr\xc3", "%"),
            ("xdfs://h/gr%C3%b", "/", b"gr\xc3", "%b"),
            ("xdfs://h/gr\u{fc}", "/", "gr\u{fc}".as_bytes(), ""),
            ("xdfs://h/a?b", "/", b"a?b", ""),
            ("xdfs+unix://%2Frun%2Fs/x", "/", b"x", ""),
        ] {
            let typed = TypedPath::parse(&none, word).unwrap();
            assert_eq!(typed.directory.path, directory.as_bytes(), "{word}");
            assert_eq!((&*typed.start, typed.escape), (start, escape), "{word}");
        }
        for word in [
            "",
            "a/b",
            "a:b",
            "http://h/a",
            "ssh://h/a",
            "sshftp://h/a",
            "xdfs://h",
            "xdfs://h/mem:z",
            "xdfs://h/%zz",
            "xdfs://h:x/a",
            "xdfs://h/a?ticket=secret",
            "xdfs+unix://%2Frun%2Fs",
        ] {
            assert!(TypedPath::parse(&none, word).is_none(), "{word}");
        }
    }

    #[test]
    fn the_rest_of_a_name_continues_the_word() {
        let none = ClientConfig::default();
        for (word, name, rest) in [
            ("xdfs://h/", file("a"), Some("a")),
            ("xdfs://h/a", file("a"), Some("")),
            ("xdfs://h/a", name("ab", FileKind::Directory), Some("b/")),
            ("xdfs://h/a%20", file("a b'c"), Some("b%27c")),
            ("xdfs://h/a b", file("a b'c"), Some("%27c")),
            ("xdfs://h/", file("?#%\"$\n"), Some("%3F%23%25%22%24%0A")),
            ("xdfs://h/", file(b"\xff"), Some("%FF")),
            ("xdfs://h/%c3%", file("\u{fc}"), Some("BC")),
            ("xdfs://h/%c3%b", file("\u{fc}"), Some("C")),
            ("xdfs://h/%c3%a", file("\u{fc}"), None),
            ("xdfs://h/x%", file("x"), None),
            ("xdfs://h/x%", file("xy"), None),
            ("xdfs://h/%%", file("%"), None),
            // These would lead elsewhere.
            ("xdfs://h/", file("mem:x"), None),
            ("xdfs://h/m", name("mem:", FileKind::Directory), None),
            ("xdfs://h/d/", file("mem:x"), Some("mem:x")),
        ] {
            let found = TypedPath::parse(&none, word).unwrap().rest(&name);
            assert_eq!(found.as_deref(), rest, "{word} {name:?}");
        }
    }

    /// Escapes mean nothing behind the name of a server, so a name that needs one isn't offered.
    #[test]
    fn words_may_begin_with_the_name_of_a_server() {
        let config = ConfigText::new(b"", "[remote.lab]\nurl = 'xdfs://h/named'".into(), "");
        let config: ClientConfig = config.parse().unwrap();
        let typed = TypedPath::parse(&config, "lab:ru").unwrap();
        assert_eq!(typed.directory.path, b"/named/");
        assert_eq!(typed.rest(&file("runs")).as_deref(), Some("ns"));
        assert_eq!(typed.rest(&file("ru n")), None);
        let typed = TypedPath::parse(&config, "lab:/").unwrap();
        assert_eq!(typed.directory.path, b"/");
        assert!(TypedPath::parse(&config, "other:ru").is_none());
    }

    #[test]
    fn hosts_have_a_port_unless_it_is_the_usual_one() {
        for (known, start, rest) in [
            ("host:2799", "", Some("host/")),
            ("host:2799", "host", Some("/")),
            ("host:2799", "host:27", Some("99/")),
            ("host:80", "ho", Some("st:80/")),
            ("[::1]:2799", "[:", Some(":1]/")),
            ("host:2799", "other", None),
            ("local-0123:0", "lo", None),
        ] {
            assert_eq!(host_rest(known, start).as_deref(), rest, "{known} {start}");
        }
    }

    #[test]
    fn the_first_and_the_last_of_many_names_stay() {
        let some: Vec<Name> = (0..CANDIDATES_MAX)
            .map(|i| file(format!("{i:04}")))
            .collect();
        assert_eq!(bounded(some.clone()), some);
        let mut many = some.clone();
        many.extend([file("a"), file("b")]);
        let kept = bounded(many);
        assert_eq!(kept.len(), CANDIDATES_MAX);
        assert_eq!(kept[..CANDIDATES_MAX - 1], some[..CANDIDATES_MAX - 1]);
        assert_eq!(kept.last(), Some(&file("b")));
    }

    #[test]
    fn flags_count_wherever_the_line_ends() {
        let flags = |line: &str| security_flags(&split_foreign(line.as_bytes()).unwrap());
        for line in [
            "xdfs ls xdfs://h/",
            "/usr/bin/xdfs cp xdfs://h/",
            "xdfs put a xdfs://h/",
            "xdfs mv xdfs://h/",
            "xdfs sum xdfs://h/",
            "xdfs sync --delete xdfs://h/",
            "xdfs chmod $MODE xdfs://h/",
            "xdfs find -mtime $DAYS xdfs://h/",
            "xdfs cp -n $N --limit-rate \"$RATE\" a xdfs://h/",
            "xdfs touch -r xdfs://h/",
            "xdfs partial ls xdfs://h/",
            "xdfs --log-file x whoami xdfs://h/",
        ] {
            let found = flags(line);
            let usual =
                found.is_some_and(|flags| !flags.login().names_credentials() && !flags.insecure);
            assert!(usual, "{line}");
        }
        let found = flags("xdfs cp --key 'a b' --known-only a xdfs://h/").unwrap();
        assert_eq!(found.key.as_deref(), Some(Path::new("a b")));
        assert!(found.known_only && found.login().names_credentials());
        assert!(flags("xdfs ls --insecure xdfs://h/").unwrap().insecure);
        // Without what these flags say, a session could be less than the user wants.
        for line in [
            "",
            "xdfs xdfs://h/",
            "xdfs nothing xdfs://h/",
            "xdfs serve xdfs://h/",
            "xdfs keygen xdfs://h/",
            "xdfs ls --pin $PIN xdfs://h/",
            "xdfs ls --nothing xdfs://h/",
            "xdfs ls --anonymous --key k xdfs://h/",
            "xdfs ls --cert c xdfs://h/",
            "xdfs ls --help xdfs://h/",
        ] {
            assert!(flags(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        let home = Some(Path::new("/h"));
        for (word, expected) in [("~/k", "/h/k"), ("a~", "a~"), ("~me/k", "~me/k"), ("", "")] {
            assert_eq!(expanded(word.as_ref(), home).unwrap(), expected, "{word}");
        }
        assert_eq!(expanded("~/k".as_ref(), None), None);
    }
}
