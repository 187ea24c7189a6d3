//! The parts common to all path commands: sessions, output, failures, the exit code.

use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::time::Duration;

use xdfs::operations::Matched;
use xdfs::record::Record;
use xdfs::settings::ClientConfig;
use xdfs::{ClientOptions, Fault, Quoting, RemotePlace, StandardOutput, is_unread};

use super::operand::{Operand, text_of};
use super::wildcards;
use crate::client::{RunningCopy, SharedClient};
use crate::console::Console;
use crate::context::Context;
use crate::exit_codes::DIFFERENT;
use crate::flags::{PathFlags, SecurityFlags, StackFlags};
use crate::interrupt::Interrupt;
use crate::log::start_log;
use crate::report::unwritten;

/// The interval between two checks for an interrupt during a transfer.
const TICK: Duration = Duration::from_millis(100);

/// A running path command.
pub(crate) struct PathCommand {
    command: &'static str,
    json: bool,
    security: SecurityFlags,
    stack: StackFlags,
    console: Console,
    out: BufWriter<StandardOutput>,
    /// Standard output is closed, or can't be written.
    unread: bool,
    /// The fault of standard output, reported at the end.
    unwritten: Option<Fault>,
    context: Context,
    clients: Vec<(RemotePlace, SharedClient)>,
    /// Number of channels of a session; `None` leaves it to the library.
    channels: Option<u32>,
    /// It makes only calls that the agent passes on, and may use its sessions.
    may_share: bool,
    operands: u64,
    failed: u64,
    exit: u8,
    interrupt: Interrupt,
}

impl PathCommand {
    /// Starts a command.
    pub(crate) fn new(context: &Context, command: &'static str, flags: &PathFlags) -> Self {
        start_log(flags.output().log_level());
        let mut command = Self {
            command,
            json: flags.json,
            security: flags.security.clone(),
            stack: flags.stack.clone(),
            console: Console::new(flags.output()),
            out: BufWriter::new(StandardOutput),
            unread: false,
            unwritten: None,
            context: context.clone(),
            clients: Vec::new(),
            channels: Some(1),
            may_share: !flags.own_session && flags.stack.is_empty(),
            operands: 0,
            failed: 0,
            exit: 0,
            interrupt: Interrupt::default(),
        };
        // There is nothing to save: a signal ends the program or command immediately.
        match context.interrupt() {
            Ok(interrupt) => command.interrupt = interrupt,
            Err(fault) => command.fault(None, &fault),
        }
        command
    }

    /// Uses as many channels as transfers need.
    pub(crate) fn with_transfers(mut self) -> Self {
        self.channels = None;
        self.with_own_sessions()
    }

    /// Opens its own sessions, for calls that the agent doesn't pass on: their end is that of the
    /// session.
    pub(crate) fn with_own_sessions(mut self) -> Self {
        self.may_share = false;
        self
    }

    /// Whether JSON lines are wanted.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether to stop: standard output is closed, or the user has interrupted the command.
    pub(crate) fn is_over(&self) -> bool {
        self.unread || self.interrupt.requested()
    }

    /// Waits for the end of a transfer. One to standard output without a reader ends the command.
    ///
    /// # Errors
    /// The fault that ended it.
    pub(crate) fn follow(&mut self, copy: impl Into<RunningCopy>) -> Result<(), Fault> {
        let mut copy = copy.into();
        while !copy.is_finished() {
            if self.interrupt.requested() {
                copy.cancel();
            }
            let _ = copy.progress(TICK);
        }
        match copy.wait() {
            Err(fault) if is_unread(&fault) => {
                self.unread = true;
                Ok(())
            }
            copied => copied.map(|_| ()),
        }
    }

    /// The quoting of names on standard output.
    pub(crate) fn quoting(&self, raw: bool) -> Quoting {
        match raw {
            true => Quoting::Raw,
            false if std::io::stdout().is_terminal() => Quoting::Shell,
            false => Quoting::Plain,
        }
    }

    /// The path on a server that a word names.
    ///
    /// # Errors
    /// It names none, or the client's configuration has a mistake.
    pub(crate) fn operand(&self, word: &OsStr) -> Result<Operand, Fault> {
        Operand::parse(self.config()?, word)
    }

    /// The client's configuration.
    ///
    /// # Errors
    /// It has a mistake.
    pub(crate) fn config(&self) -> Result<&ClientConfig, Fault> {
        self.context.config()
    }

    /// The session with the server of an operand.
    ///
    /// # Errors
    /// The session can't be opened.
    pub(crate) fn client(&mut self, operand: &Operand) -> Result<SharedClient, Fault> {
        let place = &operand.place;
        if let Some((_, client)) = self.clients.iter().find(|(at, _)| at.shares_session(place)) {
            return Ok(client.clone());
        }
        let shared = match self.may_share {
            true => self.context.shared_session(place, &self.security),
            false => Ok(None),
        };
        if let Some(client) = shared.map_err(|fault| fault.preventing(&operand.path))? {
            self.clients.push((place.clone(), client.clone()));
            return Ok(client);
        }
        let options = ClientOptions {
            channels: self.channels,
            drivers: self.stack.drivers()?,
            ..ClientOptions::default()
        };
        let client = self.context.connect(place, options, &self.security)?;
        self.clients.push((place.clone(), client.clone()));
        Ok(client)
    }

    /// The words that a word stands for, if it has wildcards.
    ///
    /// # Errors
    /// Nothing matches, or the server can't be asked.
    pub(crate) fn words_of(&mut self, word: &OsStr) -> Result<Vec<OsString>, Fault> {
        self.words_matching(word, Matched::Entries)
    }

    fn words_matching(&mut self, word: &OsStr, matched: Matched) -> Result<Vec<OsString>, Fault> {
        let context = self.context.clone();
        wildcards::words_of(&context, word, matched, |place| {
            self.client(&Operand::new(word, place.clone()))
        })
    }

    /// The one word that a word stands for, if it has wildcards.
    ///
    /// # Errors
    /// Nothing or more than one matches, or the server can't be asked.
    pub(crate) fn word_of(&mut self, word: &OsStr) -> Result<OsString, Fault> {
        wildcards::only(word, self.words_of(word)?)
    }

    /// The words that these stand for. Reports those for which nothing matches.
    pub(crate) fn expanded(&mut self, words: &[OsString]) -> Vec<OsString> {
        self.expanded_to(words, Matched::Entries)
    }

    /// The words that these stand for, among names of one kind. Reports those for which nothing
    /// matches.
    pub(crate) fn expanded_to(&mut self, words: &[OsString], matched: Matched) -> Vec<OsString> {
        let mut expanded = Vec::with_capacity(words.len());
        for word in words {
            if self.is_over() {
                break;
            }
            match self.words_matching(word, matched) {
                Ok(words) => expanded.extend(words),
                Err(fault) => self.one(&text_of(word), |_| Err(fault)),
            }
        }
        expanded
    }

    /// Runs `act` for each operand, even if others fail.
    pub(crate) fn each(
        &mut self,
        words: &[OsString],
        mut act: impl FnMut(&mut Self, &Operand) -> Result<(), Fault>,
    ) {
        for word in words {
            if self.is_over() {
                break;
            }
            self.one(&text_of(word), |command| {
                act(command, &command.operand(word)?)
            });
        }
    }

    /// Runs `act` for one operand.
    pub(crate) fn one(&mut self, text: &str, act: impl FnOnce(&mut Self) -> Result<(), Fault>) {
        self.operands += 1;
        let failed = self.failed;
        if let Err(fault) = act(self) {
            self.fault(Some(text), &fault);
        }
        // Several failures in a tree count once.
        self.failed = self.failed.min(failed + 1);
        self.report_first_use();
    }

    fn report_first_use(&mut self) {
        for (_, client) in &self.clients {
            if let Some(server) = client.first_use() {
                self.console.first_use(&server, !self.json);
            }
        }
    }

    /// Reports a failure. The command continues.
    pub(crate) fn fault(&mut self, operand: Option<&str>, fault: &Fault) {
        self.report_first_use();
        let mut clients = self.clients.iter();
        let explained = clients.find_map(|(_, client)| client.explained(fault));
        let fault = explained.as_ref().unwrap_or(fault);
        self.failed += 1;
        if self.interrupt.requested() {
            // Failures after an interrupt are its consequence, which is reported once, at the end.
            return;
        }
        if self.exit == 0 {
            self.exit = fault.exit_code();
        }
        if self.json {
            self.print(Record::operand_error(operand, fault).line().as_bytes());
        }
        self.flush();
        self.console.one_error(fault);
    }

    /// Reports the result of a comparison. A difference decides the exit code unless something
    /// failed.
    pub(crate) fn compared(&mut self, is_different: bool, text: &str) {
        if self.exit == 0 && is_different {
            self.exit = DIFFERENT;
        }
        self.flush();
        self.console.info(text);
    }

    /// Asks a question; `false` also after an interrupt.
    ///
    /// # Errors
    /// Standard input can't be read.
    pub(crate) fn confirm(&mut self, question: &str) -> Result<bool, Fault> {
        self.flush();
        let answer = self.console.confirm(question)?;
        Ok(answer && !self.interrupt.requested())
    }

    /// Writes to standard output.
    pub(crate) fn print(&mut self, bytes: &[u8]) {
        let written = self.out.write_all(bytes);
        self.check_written(written);
    }

    /// Flushes standard output.
    pub(crate) fn flush(&mut self) {
        let written = self.out.flush();
        self.check_written(written);
    }

    fn check_written(&mut self, written: std::io::Result<()>) {
        // A closed pipe isn't a failure, but a reason to stop.
        if let Err(error) = written {
            if !self.unread {
                self.unwritten = unwritten(&error);
            }
            self.unread = true;
        }
    }

    /// Writes a JSON line.
    pub(crate) fn write_record(&mut self, record: &Record<'_>) {
        self.print(record.line().as_bytes());
    }

    /// Reports success for an operand, in JSON only.
    pub(crate) fn done(&mut self, operand: &Operand) {
        if self.json {
            self.write_record(&Record::done(&operand.text, &operand.path));
        }
    }

    /// Ends the command and returns the exit code.
    pub(crate) fn finish(mut self) -> u8 {
        self.flush();
        self.console.end_errors();
        if self.interrupt.requested() {
            let fault = Interrupt::fault(&format!("finish xdfs {}", self.command));
            if self.json {
                self.print(Record::operand_error(None, &fault).line().as_bytes());
            }
            self.flush();
            self.console.error(&fault);
            self.exit = fault.exit_code();
        }
        // Its outcome belongs into the summary.
        self.flush();
        self.report_unwritten();
        if self.json {
            let (operands, failed) = (self.operands, self.failed);
            let summary = Record::summary(self.command, operands, failed, self.exit);
            self.write_record(&summary);
        }
        self.flush();
        self.report_unwritten();
        self.exit
    }

    fn report_unwritten(&mut self) {
        if let Some(fault) = self.unwritten.take() {
            if self.exit == 0 {
                self.exit = fault.exit_code();
            }
            self.console.error(&fault);
        }
    }
}
