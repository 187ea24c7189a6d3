//! Standard error: messages, hints, and the lines at the bottom that are drawn again.
//!
//! Messages are lower case without a full stop. Colour only repeats what the words say, and is
//! used on a terminal unless `NO_COLOR` is set. Text that comes from file names or from a peer
//! can't control the terminal: see [`printable`].

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use xdfs::Fault;
use xdfs::security::FirstUse;

use crate::flags::OutputFlags;

/// Width that is assumed where the terminal doesn't tell.
const COLUMNS_DEFAULT: usize = 80;

/// Standard error and what stands on it.
#[derive(Debug)]
pub(crate) struct Console {
    quiet: bool,
    verbose: bool,
    color: bool,
    terminal: bool,
    /// Lines at the bottom that the next output replaces.
    lines_drawn: usize,
}

impl Console {
    /// Looks at standard error and at the environment.
    pub(crate) fn new(flags: OutputFlags) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            quiet: flags.quiet,
            verbose: flags.verbose > 0,
            color: terminal && !dumb && !no_color,
            terminal: terminal && !dumb,
            lines_drawn: 0,
        }
    }

    /// Whether lines can be drawn again.
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
    }

    /// Prints a line unless only errors are wanted.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.quiet {
            self.print(&format!("{}\n", printable(text)));
        }
    }

    /// Says that a server is trusted from now on: also where little or nothing is to be said, if it
    /// was shown a secret.
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

    /// Draws `lines` at the bottom instead of those drawn before. Only for a terminal.
    pub(crate) fn draw(&mut self, make_lines: impl FnOnce(usize) -> Vec<String>) {
        let columns = terminal_size::terminal_size_of(std::io::stderr())
            .map_or(COLUMNS_DEFAULT, |(width, _)| usize::from(width.0).max(20));
        // The last column stays free: some terminals wrap as soon as it is written.
        let lines = make_lines(columns - 1);
        let text = redraw(self.lines_drawn, &lines);
        self.lines_drawn = lines.len();
        write(&text);
    }

    /// Removes the lines at the bottom.
    pub(crate) fn clear(&mut self) {
        if self.lines_drawn > 0 {
            write(&redraw(self.lines_drawn, &[]));
            self.lines_drawn = 0;
        }
    }

    fn print(&mut self, text: &str) {
        let erased = if self.lines_drawn > 0 {
            redraw(self.lines_drawn, &[])
        } else {
            String::new()
        };
        self.lines_drawn = 0;
        write(&(erased + text));
    }
}

/// Writes to standard error in one call. A closed one is nothing to fail for.
fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The text that replaces `before` lines at the bottom by `lines`.
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

/// The lines of a failure.
fn error_text(fault: &Fault, color: bool) -> String {
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

/// The words for a server that is trusted from now on.
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

/// `text` with every control character made visible, so that a name can't move the cursor.
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
    use xdfs::Code;

    use super::*;

    #[test]
    fn an_error_names_everything_and_its_hint() {
        let fault = Fault::new(Code::NotFound, "open", "no such file")
            .path(b"/a\n")
            .hint("look");
        assert_eq!(
            error_text(&fault, false),
            "error: local open '/a\\n': no such file\nhint: look\n"
        );
        let bare = Fault::new(Code::Io, "read", "bad\x1b[2J disk").remote();
        assert_eq!(
            error_text(&bare, false),
            "error: remote read: bad\\u{1b}[2J disk\n"
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
