//! Standard error: messages, hints, and the redrawn lines at the bottom.
//!
//! Messages are in lower case without a full stop. Colour carries no information of its own, and is
//! used on a terminal unless `NO_COLOR` is set. Text from file names or from a peer can't control
//! the terminal: see [`printable`].

use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use xdfs::Fault;
use xdfs::security::FirstUse;

use crate::flags::OutputFlags;
use crate::folded::FoldedErrors;
use crate::log;
use crate::stderr::write;

/// Assumed width of a terminal that doesn't report one.
const COLUMNS_DEFAULT: usize = 80;

/// Longest answer to a question.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Lines at the bottom of standard error that the next output replaces, whoever writes it.
static LINES_DRAWN: AtomicUsize = AtomicUsize::new(0);

/// Standard error, and the state of its redrawn lines.
#[derive(Debug)]
pub(crate) struct Console {
    quiet: bool,
    verbose: bool,
    color: bool,
    terminal: bool,
    folded: FoldedErrors,
}

impl Console {
    /// A console set up for standard error and the environment.
    pub(crate) fn new(flags: OutputFlags) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let dumb = is_dumb();
        Self {
            quiet: flags.quiet,
            verbose: flags.verbose > 0,
            color: terminal && wants_color(),
            terminal: terminal && !dumb,
            folded: FoldedErrors::default(),
        }
    }

    /// Whether lines can be redrawn.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether only errors are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether details are wanted.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Prints a failure and its hint.
    pub(crate) fn error(&mut self, fault: &Fault) {
        let text = error_text(fault, self.color);
        self.print(&text);
        log_error(fault);
    }

    /// Prints one failure of many, of which thousands may have one reason. Unless details are
    /// wanted, only the first of each kind is printed at once; [`Console::end_errors`] gives the
    /// others.
    pub(crate) fn one_error(&mut self, fault: &Fault) {
        if let Some(fault) = self.folded.next(fault, self.verbose) {
            let text = error_text(&fault, self.color);
            self.print(&text);
        }
        log_error(fault);
    }

    /// Prints the failures that were left out: a line for each kind.
    pub(crate) fn end_errors(&mut self) {
        let (faults, others) = self.folded.take_rest();
        let mut text: String = faults
            .iter()
            .map(|fault| error_text(fault, self.color))
            .collect();
        match others {
            0 => {}
            1 => text += "1 other error; -v shows all\n",
            others => text += &format!("{others} other errors; -v shows all\n"),
        }
        if !text.is_empty() {
            self.print(&text);
        }
    }

    /// Prints a line unless only errors are wanted.
    pub(crate) fn info(&mut self, text: &str) {
        if !self.quiet {
            self.print(&format!("{}\n", printable(text)));
        }
        if log::has_file() {
            tracing::info!("{}", printable(text));
        }
    }

    /// Asks a question, and reads a line of standard input. Anything but `y` or `yes`, and the end
    /// of the input, is a no.
    ///
    /// # Errors
    /// Standard input can't be read.
    pub(crate) fn confirm(&mut self, question: &str) -> Result<bool, Fault> {
        self.print(&format!("{} [y/N] ", printable(question)));
        let mut line = Vec::new();
        let input = std::io::stdin().lock();
        let read = input.take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| Fault::from_io("read the answer", "", &error))?;
        let answer = line.trim_ascii().to_ascii_lowercase();
        Ok(answer == b"y" || answer == b"yes")
    }

    /// Prints that a server was trusted on first use; in quiet mode too if it received a secret.
    pub(crate) fn first_use(&mut self, server: &FirstUse, is_wanted: bool) {
        if server.secret || (is_wanted && !self.quiet) {
            self.print(&format!("{}\n", printable(&first_use_text(server))));
        }
    }

    /// Prints a line if details are wanted.
    pub(crate) fn detail(&mut self, text: &str) {
        if self.verbose {
            self.print(&format!("{}\n", printable(text)));
        }
    }

    /// Whether somebody is there to ask: input and messages are at a terminal.
    pub(crate) fn can_ask() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Replaces the lines at the bottom. Only for a terminal.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "drawing changes the console"
    )]
    pub(crate) fn draw(&mut self, make_lines: impl FnOnce(usize) -> Vec<String>) {
        let columns = terminal_size::terminal_size_of(std::io::stderr())
            .map_or(COLUMNS_DEFAULT, |(width, _)| usize::from(width.0).max(20));
        // The last column stays free, since some terminals wrap as soon as it is written.
        let lines = make_lines(columns - 1);
        let before = LINES_DRAWN.swap(lines.len(), Ordering::Relaxed);
        write(&redraw(before, &lines));
    }

    /// Removes the lines at the bottom.
    pub(crate) fn clear(&mut self) {
        self.end_errors();
        let before = LINES_DRAWN.swap(0, Ordering::Relaxed);
        if before > 0 {
            write(&redraw(before, &[]));
        }
    }

    /// Writes lines, which replace those at the bottom.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "drawing changes the console"
    )]
    fn print(&mut self, text: &str) {
        let erased = match LINES_DRAWN.swap(0, Ordering::Relaxed) {
            0 => String::new(),
            before => redraw(before, &[]),
        };
        write(&(erased + text));
    }
}

/// Prints a problem that stops nothing, where there is no console at hand.
pub(crate) fn warn(fault: &Fault) {
    let text = warning_text(fault);
    write(&format!("{text}\n"));
    if log::has_file() {
        tracing::warn!("{text}");
    }
}

/// The line of a problem that stops nothing.
pub(crate) fn warning_text(fault: &Fault) -> String {
    let hint = match fault.hint.as_str() {
        "" => String::new(),
        hint => format!("; {hint}"),
    };
    printable(&format!("warning: {fault}{hint}"))
}

/// Whether the terminal understands no control sequences.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether the environment allows colour on a terminal.
pub(crate) fn wants_color() -> bool {
    !is_dumb() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The text that replaces the last `before` lines with `lines`.
fn redraw(before: usize, lines: &[String]) -> String {
    let mut text = String::from("\r");
    if before > 0 {
        // Writing to a string can't fail.
        let _ = write!(text, "\x1b[{before}A");
    }
    text.push_str("\x1b[J");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Logs a failure, if there is a file for it.
fn log_error(fault: &Fault) {
    if log::has_file() {
        tracing::error!(
            "{}",
            error_text(fault, false).trim_end().replace('\n', "; ")
        );
    }
}

/// The lines of a failure.
pub(crate) fn error_text(fault: &Fault, color: bool) -> String {
    let (red, cyan, plain) = if color {
        ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m")
    } else {
        ("", "", "")
    };
    let mut text = format!("{red}error:{plain} {}\n", printable(&fault.to_string()));
    if !fault.hint.is_empty() {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{cyan}hint:{plain} {}", printable(&fault.hint));
    }
    text
}

/// The message about a server trusted on first use.
fn first_use_text(server: &FirstUse) -> String {
    let secret = if server.secret {
        ", and was shown a secret"
    } else {
        ""
    };
    format!(
        "new server {} is trusted from now on, by the key {} (remembered in {}){secret}",
        server.host,
        server.fingerprint,
        server.known_hosts.display(),
    )
}

/// `text` with control characters escaped, so that a name can't move the cursor.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use xdfs::{Code, Machine};

    use super::*;

    #[test]
    fn an_error_names_everything_and_its_hint() {
        let fault = Fault::new(Code::NotFound, "open", "no such file")
            .path(b"/a\n")
            .hint("look");
        assert_eq!(
            error_text(&fault, false),
            "error: cannot open '/a'$'\\n': no such file\nhint: look\n"
        );
        let bare = Fault::new(Code::Io, "read", "bad\x1b[2J disk").remote();
        let bare = bare.at(&Machine::server("lab"));
        assert_eq!(
            error_text(&bare, false),
            "error: server lab: cannot read: bad\\u{1b}[2J disk\n"
        );
        let colored = error_text(&fault, true);
        assert!(colored.contains("error:") && colored.contains("hint:"));
    }

    #[test]
    fn drawing_replaces_what_was_there() {
        assert_eq!(redraw(0, &["a".into()]), "\r\x1b[Ja\n");
        assert_eq!(
            redraw(2, &["a".into(), "b".into()]),
            "\r\x1b[2A\x1b[Ja\nb\n"
        );
        assert_eq!(redraw(2, &[]), "\r\x1b[2A\x1b[J");
    }

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(printable("a\tb\u{202e}c é"), "a\\tb\\u{202e}c é");
    }
}
