//! `xdfs shell`: runs commands of the program in one session.
//!
//! A line is split into [`words`]; [`operands`] distinguishes remote from local paths; [`paths`]
//! makes relative paths absolute, and patterns are expanded. The result is parsed and run as a
//! command line of the program. Lines come from a terminal ([`edit`], with [`complete`]) or a
//! script.

mod complete;
mod edit;
mod operands;
mod paths;

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::parser::ValueSource;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _};
use xdfs::operations::path::local_name;
use xdfs::operations::{Names, expand, listed_names};
use xdfs::words::{self, Word};
use xdfs::{Answer, Call, Code, Fault, FileKind, Quoting, RemotePlace};

use crate::console::{Console, warn};
use crate::context::{Context, ShellSession};
use crate::exit_codes::SUCCESS;
use crate::flags::{Cli, SessionFlags, ShellFlags, StripeFlags};
use crate::interrupt::Interrupt;
use crate::log::start_log;
use crate::paths::check_name;
use crate::paths::operand::Operand;
use crate::place::word_of;
use crate::report::{print, print_parsed};
use crate::run_command;
use complete::Completer;
use operands::{Role, Side};
use paths::{Roots, trimmed};

/// Commands of the program that are available in a shell.
const COMMANDS: [&str; 21] = [
    "cat", "check", "chmod", "chown", "cp", "df", "du", "find", "get", "ln", "ls", "mkdir", "mv",
    "put", "rm", "stat", "sum", "sync", "touch", "truncate", "help",
];
/// Commands of the shell itself.
const OWN: [&str; 7] = ["cd", "exit", "history", "lcd", "lpwd", "pwd", "quit"];
/// Longest line of a script, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Idle time after which the session is checked before a command.
const QUIET: Duration = Duration::from_secs(1);

/// Help on the commands of the shell itself.
const HELP: &str = "\
Commands of the shell:
  cd [DIRECTORY]   change the working directory on the server; '-' for the one before
  pwd              print it
  lcd [DIRECTORY]  change the working directory here
  lpwd             print it
  history          list the lines before this one
  help [COMMAND]   say how a command is used
  exit [CODE]      end the shell; so does quit, or Ctrl-D

Commands of the program, with its flags:
  ls stat cat find sum df du mkdir rm mv ln touch chmod chown truncate sync check
  put FILE... [DIRECTORY]  copy to the server
  get FILE... [DIRECTORY]  copy from the server
  cp SOURCE... TARGET      copy either way; paths on the server are written :PATH,
                           as for sync and check

See 'xdfs shell --help' for how lines are read.
";

/// Runs `xdfs shell` and returns the exit code.
pub(crate) fn run(context: &Context, flags: &ShellFlags) -> u8 {
    start_log(flags.output().log_level());
    let mut console = Console::new(flags.output());
    match Shell::begin(context, flags, &mut console) {
        Ok(shell) => shell.run(flags.keep_going),
        Err(fault) => {
            console.error(&fault);
            fault.exit_code()
        }
    }
}

/// A running shell.
struct Shell {
    session: Arc<ShellSession>,
    console: Console,
    /// The definition of the command line.
    definition: clap::Command,
    completer: Rc<Completer>,
    /// The working directory on the server, the previous one, and the initial one.
    directory: Vec<u8>,
    directory_before: Option<Vec<u8>>,
    home: Vec<u8>,
    is_interactive: bool,
    /// The end of the latest command.
    idle_since: Instant,
}

/// What to do after a line.
enum LineOutcome {
    /// Read the next line; this one ended with an exit code.
    Continue(u8),
    /// End the shell with an exit code.
    Exit(u8),
}

impl Shell {
    /// Opens the session, and checks the initial directory.
    fn begin(context: &Context, flags: &ShellFlags, console: &mut Console) -> Result<Self, Fault> {
        let operand = Operand::parse(context.config()?, &flags.url)?;
        let place = operand.place;
        if place.path.starts_with(b"mem:") {
            let cause = "it is a built-in store of the server, not a directory";
            return Err(Fault::new(Code::NotDirectory, "begin the shell", cause).path(place.path));
        }
        let is_interactive = std::io::stdin().is_terminal();
        let session = ShellSession::new(context.clone(), place, &flags.session, !is_interactive)?;
        let path = match session.place().path.as_slice() {
            b"" => b"/",
            path => path,
        };
        let home = paths::absolute(b"/", path, Roots::of(session.place()))?;
        let mut definition = Cli::command();
        definition.build();
        let completer = Rc::new(Completer::new(&session, definition.clone()));
        let mut shell = Self {
            session,
            console: Console::new(flags.output()),
            definition,
            completer,
            directory: Vec::new(),
            directory_before: None,
            home: trimmed(home),
            is_interactive,
            idle_since: Instant::now(),
        };
        let home = shell.home.clone();
        let entered = shell.enter(home);
        // Even after a refusal the server is trusted now.
        if let Some(server) = shell.session.first_use() {
            console.first_use(&server, true);
        }
        entered?;
        shell.directory_before = None;
        Ok(shell)
    }

    fn run(mut self, keep_going: bool) -> u8 {
        let exit = if self.is_interactive {
            edit::run(&mut self)
        } else {
            self.run_script(keep_going)
        };
        self.session.close();
        exit
    }

    /// Runs the lines of standard input.
    fn run_script(&mut self, keep_going: bool) -> u8 {
        let mut exit = SUCCESS;
        loop {
            let mut line = Vec::new();
            // The lock isn't held while a command runs.
            let input = std::io::stdin().lock();
            let read = input.take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
            let code = match read {
                Ok(0) => return exit,
                Ok(_) if line.len() as u64 > LINE_BYTES_MAX => {
                    let cause = "too long";
                    let fault = Fault::new(Code::InvalidArgument, "read the line", cause);
                    self.console.error(&fault);
                    return if exit == SUCCESS {
                        fault.exit_code()
                    } else {
                        exit
                    };
                }
                Ok(_) => match self.line(line.strip_suffix(b"\n").unwrap_or(&line), &[]) {
                    LineOutcome::Continue(code) => code,
                    // Like the code of a command: the first failure takes precedence.
                    LineOutcome::Exit(code) => return if exit == SUCCESS { code } else { exit },
                },
                Err(error) => {
                    let fault = Fault::from_io("read standard input", "", &error);
                    self.console.error(&fault);
                    return if exit == SUCCESS {
                        fault.exit_code()
                    } else {
                        exit
                    };
                }
            };
            if exit == SUCCESS {
                exit = code;
            }
            let was_stopped = code == Code::Cancelled.exit_code();
            if code != SUCCESS && (!keep_going || was_stopped) {
                return exit;
            }
        }
    }

    /// The prompt.
    fn prompt(&self) -> String {
        let path = Quoting::Plain.text(&self.directory);
        let place = self.session.place();
        let server = match &place.profile {
            Some(name) => name.clone(),
            None => place.address.to_string(),
        };
        format!("{}:{path}> ", crate::console::printable(&server))
    }

    /// Runs a line; `history` has the earlier ones.
    fn line(&mut self, line: &[u8], history: &[String]) -> LineOutcome {
        let interrupt = self.session.begin();
        let next = self.run_line(line, history, &interrupt);
        self.session.end();
        self.idle_since = Instant::now();
        self.completer.forget();
        next.unwrap_or_else(|fault| {
            let fault = if interrupt.requested() {
                Interrupt::fault("run the command")
            } else {
                fault
            };
            self.console.error(&fault);
            LineOutcome::Continue(fault.exit_code())
        })
    }

    fn run_line(
        &mut self,
        line: &[u8],
        history: &[String],
        interrupt: &Interrupt,
    ) -> Result<LineOutcome, Fault> {
        let words = operands::with_long_tests(words::split(line)?);
        let Some(first) = words.first() else {
            return Ok(LineOutcome::Continue(SUCCESS));
        };
        let name = String::from_utf8_lossy(&first.bytes).into_owned();
        let done = Ok(LineOutcome::Continue(SUCCESS));
        match name.as_str() {
            "exit" | "quit" => Ok(LineOutcome::Exit(exit_code(&words)?)),
            "help" => self.help(&words).map(LineOutcome::Continue),
            "history" => {
                at_most(&words, 0)?;
                for (at, line) in history.iter().enumerate() {
                    let line = crate::console::printable(line);
                    print(format!("{:5}  {line}\n", at + 1))?;
                }
                done
            }
            "lcd" => {
                let words = self.with_names(words, interrupt)?;
                let words: Vec<Word> = words.into_iter().map(|(word, _)| word).collect();
                change_local(&words)?;
                done
            }
            "lpwd" => {
                at_most(&words, 0)?;
                let directory = std::env::current_dir();
                let directory =
                    directory.map_err(|e| Fault::from_io("find the current directory", "", &e))?;
                print(line_of(directory.as_os_str().as_encoded_bytes()))?;
                done
            }
            "pwd" => {
                at_most(&words, 0)?;
                print(line_of(&self.directory))?;
                done
            }
            "cd" => {
                self.revive()?;
                let words = self.with_names(words, interrupt)?;
                let words: Vec<Word> = words.into_iter().map(|(word, _)| word).collect();
                self.change(&words)?;
                done
            }
            name if COMMANDS.contains(&name) => {
                self.revive()?;
                self.command(words, interrupt).map(LineOutcome::Continue)
            }
            name => {
                let cause = "no such command in the shell";
                Err(Fault::new(Code::InvalidArgument, "run the command", cause)
                    .path(name)
                    .hint("see help"))
            }
        }
    }

    /// Checks an idle session. If it is broken, the next user gets another one.
    fn revive(&self) -> Result<(), Fault> {
        let client = self.session.session()?;
        if self.idle_since.elapsed() >= QUIET {
            // The session records its own end.
            let _ = client.call(Call::Stat {
                path: b"/".to_vec(),
                follow: true,
            });
            self.session.session()?;
        }
        Ok(())
    }

    /// Runs a command of the program.
    fn command(&self, words: Vec<Word>, interrupt: &Interrupt) -> Result<u8, Fault> {
        let words = self.with_defaults(words);
        let words = self.with_names(words, interrupt)?;
        let line = self.program_line(&words)?;
        let matches = match Cli::command().try_get_matches_from(line) {
            Ok(matches) => matches,
            Err(error) => return print_parsed(&error),
        };
        let cli = match Cli::from_arg_matches(&matches) {
            Ok(cli) => cli,
            Err(error) => return print_parsed(&error),
        };
        if cli.log_file.is_some() {
            let cause = "a shell has one log";
            return Err(Fault::new(Code::InvalidArgument, "start the log", cause)
                .hint("give --log-file to xdfs shell"));
        }
        if interrupt.requested() {
            return Err(Interrupt::fault("run the command"));
        }
        let context = Context::of_shell(&self.session, names_session(&matches));
        Ok(run_command(&context, cli.command))
    }

    fn roles(&self, words: &[Word]) -> Vec<Role> {
        let name = words
            .first()
            .map(|word| String::from_utf8_lossy(&word.bytes));
        let definition = name.and_then(|name| self.definition.find_subcommand(&*name));
        operands::roles(definition, words)
    }

    /// Adds default paths.
    fn with_defaults(&self, mut words: Vec<Word>) -> Vec<Word> {
        let roles = self.roles(&words);
        let is_operand = |role: &&Role| matches!(role, Role::Operand(_));
        let count = roles.iter().filter(is_operand).count();
        let name = words.first().map_or(&b""[..], |word| &word.bytes);
        let default = match (name, count) {
            (b"ls" | b"find" | b"df" | b"du", 0) => ".",
            (b"put" | b"get", 1) => "./",
            _ => return words,
        };
        words.push(Word::plain(default));
        words
    }

    /// Expands patterns, and returns each word with its role. Roles are determined before the
    /// expansion, so that file names can't choose their side.
    fn with_names(
        &self,
        words: Vec<Word>,
        interrupt: &Interrupt,
    ) -> Result<Vec<(Word, Role)>, Fault> {
        let roles = self.roles(&words);
        let command = words.first().map_or(&b""[..], |word| &word.bytes);
        let target = operands::target(command, &roles);
        let mut out = Vec::with_capacity(words.len());
        for (at, (word, role)) in words.into_iter().zip(roles).enumerate() {
            let (Some(pattern), Role::Operand(side)) = (&word.pattern, &role) else {
                out.push((word, role));
                continue;
            };
            if self.is_remote(&word.bytes) || *side == Side::Text {
                out.push((word, role));
                continue;
            }
            let (is_there, mark, pattern) = match (side, pattern.strip_prefix(b":")) {
                (Side::Remote, _) => (true, &b""[..], pattern.as_slice()),
                (Side::Either, Some(pattern)) => (true, &b":"[..], pattern),
                _ => (false, &b""[..], pattern.as_slice()),
            };
            let found = if is_there {
                let mut there = RemoteNames {
                    shell: self,
                    interrupt,
                };
                expand(pattern, &mut there).map_err(|fault| match fault.code {
                    Code::NotFound if fault.side == xdfs::Side::Local => {
                        let address = &self.session.place().address;
                        fault.remote().at(&address.machine())
                    }
                    _ => fault,
                })?
            } else {
                expand(pattern, &mut LocalNames)?
            };
            if target == Some(at) && found.len() > 1 {
                let cause = format!("{} names match, and there is one target", found.len());
                return Err(Fault::new(Code::InvalidArgument, "find", cause)
                    .path(&word.bytes)
                    .hint("name the target"));
            }
            for path in found {
                // A name must not look like a flag, or like a path on the other side.
                let is_odd = matches!(path.first(), Some(b'-' | b':')) || self.is_remote(&path);
                let before = if mark.is_empty() && is_odd {
                    b"./"
                } else {
                    mark
                };
                out.push((Word::plain([before, &path].concat()), role.clone()));
            }
        }
        Ok(out)
    }

    /// The words as a command line of the program.
    fn program_line(&self, words: &[(Word, Role)]) -> Result<Vec<OsString>, Fault> {
        let mut line = vec![OsString::from("xdfs")];
        let removes = words.first().is_some_and(|(word, _)| word.bytes == b"rm");
        let is_operand = |role: &Role| matches!(role, Role::Operand(_));
        let mut left = words.iter().filter(|(_, role)| is_operand(role)).count();
        for (word, role) in words {
            let bytes = word.bytes.as_slice();
            let marked = bytes.strip_prefix(b":");
            let is_operand = is_operand(role);
            left -= usize::from(is_operand);
            let there = match role {
                _ if self.is_remote(bytes) => None,
                Role::Operand(Side::Remote) => Some(bytes),
                Role::Operand(Side::Either) => marked,
                Role::Value(id) if id == "reference" => marked,
                _ => None,
            };
            if let Some(path) = there {
                if is_operand && removes {
                    // Its URL would have the name of the directory instead.
                    check_name(path, "remove")?;
                }
                line.push(self.url(path)?);
                continue;
            }
            if is_operand && bytes == b"-" && left > 0 {
                let cause = "standard input belongs to the shell";
                return Err(Fault::new(Code::InvalidArgument, "plan the copy", cause)
                    .hint("use xdfs cp - URL outside of the shell"));
            }
            line.push(os_word(bytes)?);
        }
        Ok(line)
    }

    /// A path on the server, made absolute.
    fn absolute(&self, path: &[u8]) -> Result<Vec<u8>, Fault> {
        let roots = Roots::of(self.session.place());
        paths::absolute(&self.directory, path, roots)
    }

    /// The URL of a path on the server.
    fn url(&self, path: &[u8]) -> Result<OsString, Fault> {
        let place = RemotePlace {
            path: self.absolute(path)?,
            invitation: Default::default(),
            ..self.session.place().clone()
        };
        word_of(&place).ok_or_else(|| impossible(&place.path))
    }

    /// Whether a word is the URL of a server, or has the name of one.
    fn is_remote(&self, word: &[u8]) -> bool {
        let config = self.session.config();
        local_name(word).is_some_and(|word| config.is_some_and(|c| c.is_remote(word.as_os_str())))
    }

    /// `cd`.
    fn change(&mut self, words: &[Word]) -> Result<(), Fault> {
        at_most(words, 1)?;
        let path = match words.get(1).map(|word| word.bytes.as_slice()) {
            None => self.home.clone(),
            Some(b"-") => self.directory_before.clone().ok_or_else(|| {
                let cause = "no previous directory";
                Fault::new(Code::InvalidArgument, "change the directory", cause)
            })?,
            Some(path) => trimmed(self.absolute(path)?),
        };
        let is_back = words.get(1).is_some_and(|word| word.bytes == b"-");
        self.enter(path)?;
        if is_back {
            print(line_of(&self.directory))?;
        }
        Ok(())
    }

    fn enter(&mut self, path: Vec<u8>) -> Result<(), Fault> {
        let client = self.session.session()?;
        let answer = client.call(Call::Stat {
            path: path.clone(),
            follow: true,
        })?;
        if !matches!(answer, Answer::Attributes(a) if a.kind == FileKind::Directory) {
            let cause = "not a directory";
            return Err(Fault::new(Code::NotDirectory, "change the directory", cause).path(path));
        }
        let before = std::mem::replace(&mut self.directory, path);
        self.directory_before = Some(before);
        self.completer.enter(&self.directory);
        Ok(())
    }

    /// `help`.
    fn help(&self, words: &[Word]) -> Result<u8, Fault> {
        at_most(words, 1)?;
        let Some(name) = words.get(1) else {
            print(HELP)?;
            return Ok(SUCCESS);
        };
        let name = String::from_utf8_lossy(&name.bytes).into_owned();
        if OWN.contains(&name.as_str()) || name == "help" {
            print(HELP)?;
            return Ok(SUCCESS);
        }
        if !COMMANDS.contains(&name.as_str()) {
            let cause = "no such command in the shell";
            return Err(Fault::new(Code::InvalidArgument, "show help for", cause).path(name));
        }
        let shown = Cli::command().try_get_matches_from(["xdfs", &name, "--help"]);
        let help = shown.err();
        help.map_or(Ok(SUCCESS), |help| print_parsed(&help))
    }
}

/// Names on the server.
struct RemoteNames<'a> {
    shell: &'a Shell,
    interrupt: &'a Interrupt,
}

impl Names for RemoteNames<'_> {
    fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        let path = trimmed(self.shell.absolute(directory)?);
        let client = self.shell.session.session()?;
        let mut go_on = || match self.interrupt.requested() {
            true => Err(Interrupt::fault("list")),
            false => Ok(()),
        };
        listed_names(&client, &path, &mut go_on, &mut |fault| warn(fault))
    }

    fn look(&mut self, path: &[u8]) -> Result<(), Fault> {
        let call = Call::Stat {
            path: trimmed(self.shell.absolute(path)?),
            follow: false,
        };
        self.shell.session.session()?.call(call).map(drop)
    }

    fn is_directory(&mut self, path: &[u8]) -> bool {
        let Ok(path) = self.shell.absolute(path) else {
            return false;
        };
        let call = Call::Stat {
            path: trimmed(path),
            follow: true,
        };
        let client = self.shell.session.session();
        let answer = client.and_then(|client| client.call(call));
        matches!(answer, Ok(Answer::Attributes(a)) if a.kind == FileKind::Directory)
    }
}

/// Names on this machine.
struct LocalNames;

impl Names for LocalNames {
    fn names(&mut self, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
        let fault = |error: std::io::Error| Fault::from_io("list", directory, &error);
        let path = local_path(directory)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fault)? {
            let name = entry.map_err(fault)?.file_name();
            names.push(name.as_encoded_bytes().to_vec());
        }
        Ok(names)
    }

    fn look(&mut self, path: &[u8]) -> Result<(), Fault> {
        let found = local_path(path)?.symlink_metadata();
        found
            .map(drop)
            .map_err(|error| Fault::from_io("find", path, &error))
    }

    fn is_directory(&mut self, path: &[u8]) -> bool {
        local_path(path).is_ok_and(|path| path.is_dir())
    }
}

/// A word of a command line of this system.
fn os_word(bytes: &[u8]) -> Result<OsString, Fault> {
    local_path(bytes).map(PathBuf::into_os_string)
}

fn local_path(bytes: &[u8]) -> Result<PathBuf, Fault> {
    local_name(bytes).ok_or_else(|| impossible(bytes))
}

fn impossible(name: &[u8]) -> Fault {
    let cause = "names with these bytes are not possible on this system";
    Fault::new(Code::InvalidArgument, "read the line", cause).path(name)
}

/// Whether a command has session flags of its own.
fn names_session(matches: &clap::ArgMatches) -> bool {
    let Some((_, matches)) = matches.subcommand() else {
        return false;
    };
    let flags = SessionFlags::augment_args(clap::Command::new("session"));
    let flags = StripeFlags::augment_args(flags);
    flags.get_arguments().any(|arg| {
        let id = arg.get_id().as_str();
        let has = matches.ids().any(|given| given == id);
        has && matches.value_source(id) == Some(ValueSource::CommandLine)
    })
}

fn at_most(words: &[Word], operands: usize) -> Result<(), Fault> {
    match words.get(operands + 1) {
        None => Ok(()),
        Some(word) => {
            let cause = "too many arguments";
            Err(Fault::new(Code::InvalidArgument, "run the command", cause).path(&word.bytes))
        }
    }
}

fn exit_code(words: &[Word]) -> Result<u8, Fault> {
    at_most(words, 1)?;
    let Some(word) = words.get(1) else {
        return Ok(SUCCESS);
    };
    let code = std::str::from_utf8(&word.bytes).ok();
    code.and_then(|code| code.parse().ok()).ok_or_else(|| {
        let cause = "not an exit code (0 to 255)";
        Fault::new(Code::InvalidArgument, "end the shell", cause).path(&word.bytes)
    })
}

/// `lcd`.
fn change_local(words: &[Word]) -> Result<(), Fault> {
    at_most(words, 1)?;
    let path = match words.get(1) {
        Some(word) => local_path(&word.bytes)?,
        None => {
            let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
            home.map(PathBuf::from).ok_or_else(|| {
                let cause = "HOME is not set";
                Fault::new(Code::NotFound, "change the local directory", cause)
            })?
        }
    };
    let name = path.as_os_str().as_encoded_bytes();
    std::env::set_current_dir(Path::new(&path))
        .map_err(|error| Fault::from_io("change the local directory", name, &error))
}

/// A path as a line of output.
fn line_of(path: &[u8]) -> Vec<u8> {
    let quoting = if std::io::stdout().is_terminal() {
        Quoting::Shell
    } else {
        Quoting::Plain
    };
    let mut line = quoting.write(path);
    line.push(b'\n');
    line
}
