//! `xdfs cp --from-file`: a list of sources and targets, one pair a line, as `globus-url-copy -f`
//! has it.
//!
//! The list is read ahead by a thread, a bounded number of lines, so that it may have any length
//! and may be written while it is read.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

use xdfs::{Code, Fault, TransferRoute};

use super::origins::Origins;
use super::plan::{self, PlannedCopy};
use super::{chosen, copy_files, expand, retries_of, tree};
use crate::context::Context;
use crate::flags::{CpFlags, Places};
use crate::interrupt::Interrupt;
use crate::place::{local_name, shown};
use crate::report::{Label, Reporter};
use crate::session::{Connector, check_stripes};

const OPERATION: &str = "read the list of copies";
/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Lines read ahead.
const LINES_AHEAD: usize = 256;
/// Copies of files that are queued at once.
const BATCH: usize = 256;
/// Interval of looks at whether the user wants to stop.
const TICK: Duration = Duration::from_millis(100);

/// A line of the list that isn't blank and no comment.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    /// Counted from 1.
    number: u64,
    text: Result<Vec<u8>, Fault>,
}

/// Copies what a list says. Each line is a copy of its own, with the flags of the command.
///
/// # Errors
/// The list can't be opened, or the run can't be started.
pub(super) fn run(
    connector: &Connector,
    context: &Context,
    flags: &CpFlags,
    list: &Path,
    reporter: &mut Reporter,
) -> Result<(), Fault> {
    let lines = read_ahead(list)?;
    let interrupt = context.interrupt()?;
    interrupt.orderly(true);
    let mut run = Run {
        sessions: Sessions::new(connector.clone(), flags),
        sessions_of_ftp: None,
        is_of_ftp: false,
        context,
        flags,
        interrupt: &interrupt,
        reporter,
        batch: Vec::new(),
        retries_max: None,
        hasher: RandomState::new(),
        targets: HashSet::new(),
        moved: HashSet::new(),
    };
    loop {
        // What is queued isn't kept waiting for lines that are still to be written.
        let next = match lines.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                run.copy_batch()?;
                match lines.recv_timeout(TICK) {
                    Ok(line) => Some(line),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => None,
                }
            }
        };
        if interrupt.requested() {
            break;
        }
        if let Some(line) = next {
            run.take(line)?;
        }
    }
    run.copy_batch()?;
    match interrupt.requested() {
        true => Err(Interrupt::fault("copy").hint("run the same command again to resume")),
        false => Ok(()),
    }
}

/// The sessions of lines.
#[derive(Clone)]
struct Sessions {
    connector: Connector,
    origins: Origins,
}

impl Sessions {
    fn new(connector: Connector, flags: &CpFlags) -> Self {
        Self {
            origins: Origins::new(&connector, flags.between.into()),
            connector,
        }
    }
}

struct Run<'a> {
    sessions: Sessions,
    /// The sessions of lines in which `--insecure` is about FTP only.
    sessions_of_ftp: Option<Sessions>,
    /// The batch is of these.
    is_of_ftp: bool,
    context: &'a Context,
    flags: &'a CpFlags,
    interrupt: &'a Interrupt,
    reporter: &'a mut Reporter,
    /// Files to copy, which have the same number of retries.
    batch: Vec<PlannedCopy>,
    retries_max: Option<u32>,
    hasher: RandomState,
    /// Hashes of the targets of the batch.
    targets: HashSet<u64>,
    /// Hashes of the targets of all files whose sources are removed.
    moved: HashSet<u64>,
}

impl Run<'_> {
    /// Plans a line. Its fault is its own, and the others go on.
    fn take(&mut self, line: Line) -> Result<(), Fault> {
        // What isn't understood isn't shown: it may have a password.
        let mut label = Label {
            source: format!("line {}", line.number),
            target: String::new(),
        };
        let planned = line.text.and_then(|text| {
            let places = pair(&text).map_err(|cause| {
                let cause = format!("line {} {cause}", line.number);
                Fault::new(Code::InvalidArgument, OPERATION, cause)
                    .hint("write: SOURCE TARGET, in double quotes if they have spaces")
            })?;
            label = Label {
                source: shown(&places.sources[0]),
                target: shown(&places.target),
            };
            self.plan(places)
        });
        match planned {
            Ok(jobs) => jobs.into_iter().try_for_each(|job| self.add(job)),
            Err(fault) => {
                // What comes before it in the list is reported before it.
                self.copy_batch()?;
                self.reporter.failure(Some(&label), &fault);
                Ok(())
            }
        }
    }

    /// The files to copy of a line. Its directories are copied here.
    fn plan(&mut self, places: Places) -> Result<Vec<PlannedCopy>, Fault> {
        let mut flags = CpFlags {
            places,
            ..self.flags.clone()
        };
        let words = (&flags.places.sources[..], &*flags.places.target);
        check_stripes(self.context, &flags.stripe, words)?;
        let Sessions { connector, origins } = self.sessions_for(&flags.places)?;
        expand::expand_sources(&connector, &mut flags)?;
        let many = flags.places.sources.len() > 1;
        chosen::leave_out_files(&connector, &mut flags)?;
        if flags.recursive || flags.archive {
            let trees = tree::take_trees(&connector, &mut flags, &origins)?;
            if !trees.is_empty() {
                // In the order of the list.
                self.copy_batch()?;
                let (interrupt, reporter) = (self.interrupt, &mut *self.reporter);
                tree::copy(&connector, &flags, &trees, &origins, interrupt, reporter);
            }
            if flags.places.sources.is_empty() {
                return Ok(Vec::new());
            }
        }
        let jobs = plan::plan(self.context.config()?, &flags, many, &origins)?;
        if jobs.iter().any(PlannedCopy::is_stream) {
            let cause = "a standard stream can't be in a list";
            return Err(Fault::new(Code::InvalidArgument, OPERATION, cause)
                .hint("copy it by a command of its own"));
        }
        Ok(jobs)
    }

    /// The sessions for a line. A batch is of those for all of its lines.
    fn sessions_for(&mut self, places: &Places) -> Result<Sessions, Fault> {
        let words = places.sources.iter().chain([&places.target]);
        let connector = self.sessions.connector.clone().for_words(words);
        let is_of_ftp = connector.flags.security.is_consent_to_ftp;
        if is_of_ftp != self.is_of_ftp {
            self.copy_batch()?;
            self.is_of_ftp = is_of_ftp;
        }
        let flags = self.flags;
        Ok(match is_of_ftp {
            true => {
                let new = || Sessions::new(connector, flags);
                self.sessions_of_ftp.get_or_insert_with(new).clone()
            }
            false => self.sessions.clone(),
        })
    }

    /// Queues a copy. Those to one target are made in the order of the list, one after the other.
    fn add(&mut self, job: PlannedCopy) -> Result<(), Fault> {
        let target = match &job.route {
            TransferRoute::Upload { .. } => Some((&job.server.address, &job.server.user)),
            TransferRoute::Download { .. } => None,
        };
        let shown = format!("{target:?} {}", job.label.target);
        let target = self.hasher.hash_one(shown);
        if self.flags.remove_source && !self.moved.insert(target) {
            self.copy_batch()?;
            let cause = "an earlier line moves a file to this target, which would be lost";
            let fault = Fault::new(Code::InvalidArgument, OPERATION, cause)
                .hint("give each file a target of its own; the name of a directory ends with '/'");
            self.reporter.failure(Some(&job.label), &fault);
            return Ok(());
        }
        if self.targets.contains(&target) {
            self.copy_batch()?;
        }
        let retries = retries_of(self.context.config()?, self.flags, &job);
        if self.batch.len() >= BATCH || self.retries_max.is_some_and(|other| other != retries) {
            self.copy_batch()?;
        }
        self.retries_max = Some(retries);
        self.targets.insert(target);
        self.batch.push(job);
        Ok(())
    }

    fn copy_batch(&mut self) -> Result<(), Fault> {
        let jobs = std::mem::take(&mut self.batch);
        self.retries_max = None;
        self.targets.clear();
        if jobs.is_empty() || self.interrupt.requested() {
            return Ok(());
        }
        let of_ftp = self.sessions_of_ftp.as_ref().filter(|_| self.is_of_ftp);
        let Sessions { connector, origins } = of_ftp.unwrap_or(&self.sessions);
        copy_files(
            connector,
            self.flags,
            jobs,
            origins,
            self.interrupt,
            self.reporter,
        )
    }
}

/// Reads lines in a thread, which ends with the list or with the receiver. At standard input it may
/// outlive the receiver, and then ends with the process.
fn read_ahead(list: &Path) -> Result<Receiver<Line>, Fault> {
    let name = list.as_os_str().as_encoded_bytes().to_vec();
    let mut reader: Box<dyn BufRead + Send> = match list.as_os_str() == "-" {
        true => Box::new(BufReader::new(std::io::stdin())),
        false => {
            let file = File::open(list);
            let file = file.map_err(|error| Fault::from_io(OPERATION, &name, &error))?;
            Box::new(BufReader::new(file))
        }
    };
    let (sender, lines) = sync_channel(LINES_AHEAD);
    let read = move || {
        for number in 1.. {
            let text = match next_line(&mut reader) {
                Ok(Some(Some(text))) => Ok(text),
                Ok(Some(None)) => {
                    let cause = format!("line {number} has more than {LINE_BYTES_MAX} bytes");
                    Err(Fault::new(Code::InvalidArgument, OPERATION, cause).path(&name))
                }
                Ok(None) => return,
                Err(error) => Err(Fault::from_io(OPERATION, &name, &error)),
            };
            let is_blank =
                |text: &[u8]| matches!(text.trim_ascii_start().first(), None | Some(b'#'));
            if text.as_ref().is_ok_and(|text| is_blank(text)) {
                continue;
            }
            let is_broken = text
                .as_ref()
                .is_err_and(|fault| fault.code != Code::InvalidArgument);
            if sender.send(Line { number, text }).is_err() || is_broken {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("list".into())
        .spawn(read)
        .map_err(|error| Fault::from_io("start a thread", "", &error))?;
    Ok(lines)
}

/// The next line without its end; `None` at the end, and `Some(None)` for one that is too long.
fn next_line(reader: &mut dyn BufRead) -> std::io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    let read = reader
        .take(LINE_BYTES_MAX + 1)
        .read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.len() as u64 > LINE_BYTES_MAX {
        while line.last() != Some(&b'\n') {
            line.clear();
            if reader.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                break;
            }
        }
        return Ok(Some(None));
    }
    while line
        .last()
        .is_some_and(|byte| matches!(byte, b'\n' | b'\r'))
    {
        line.pop();
    }
    Ok(Some(Some(line)))
}

/// The two places of a line, as `globus-url-copy` writes them: separated by spaces, those with
/// spaces in double quotes.
fn pair(line: &[u8]) -> Result<Places, &'static str> {
    let mut rest = line.trim_ascii();
    let mut words = Vec::new();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = quoted.iter().position(|&b| b == b'"');
                let end = end.ok_or("has a quote that doesn't end")?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => {
                let end = rest.iter().position(u8::is_ascii_whitespace);
                rest.split_at(end.unwrap_or(rest.len()))
            }
        };
        if !after.is_empty() && !after[0].is_ascii_whitespace() {
            return Err("has something right after a quote");
        }
        words.push(word);
        rest = after.trim_ascii_start();
    }
    let [source, target] = match words.as_slice() {
        [source, target] => [*source, *target],
        [_, _, _] => return Err("has a third word; parts of files can't be chosen by line"),
        _ => return Err("doesn't have a source and a target"),
    };
    Ok(Places {
        sources: vec![word(source)?],
        target: word(target)?,
    })
}

/// A place, which for files of this machine may be a `file:` URL (RFC 8089).
fn word(bytes: &[u8]) -> Result<OsString, &'static str> {
    let local = [&b"file://localhost/"[..], b"file:///"].into_iter();
    let local = local.filter_map(|prefix| bytes.strip_prefix(prefix)).next();
    let bytes = match local {
        Some(path) => decoded(path).ok_or("has a % that two hexadecimal digits don't follow")?,
        None => bytes.to_vec(),
    };
    let name = local_name(&bytes).map(PathBuf::into_os_string);
    name.ok_or("has bytes that can't be in names on this system")
}

/// An absolute path from what follows the slash in a URL.
fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = vec![b'/'];
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(*bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<[String; 2], &'static str> {
        let places = pair(line.as_bytes())?;
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        Ok([text(&places.sources[0]), text(&places.target)])
    }

    #[test]
    fn lines_have_two_places() {
        for (line, wanted) in [
            ("a xdfs://h/b", ["a", "xdfs://h/b"]),
            ("  \"a b\"\t\"xdfs://h/c d\" ", ["a b", "xdfs://h/c d"]),
            ("file:///a%20b ftp://h/c", ["/a b", "ftp://h/c"]),
            ("ftp://h/c file://localhost/x", ["ftp://h/c", "/x"]),
            ("a#b \"#c\"", ["a#b", "#c"]),
        ] {
            assert_eq!(words(line).unwrap(), wanted, "{line}");
        }
        for (line, cause) in [
            ("a", "doesn't have a source and a target"),
            ("a b c d", "doesn't have a source and a target"),
            ("ftp://h/a b 0,-1", "third word"),
            ("\"a b", "doesn't end"),
            ("\"a\"b c", "right after"),
            ("file:///%4 c", "%"),
        ] {
            let found = words(line).unwrap_err();
            assert!(found.contains(cause), "{line}: {found}");
        }
    }

    #[test]
    fn long_lines_are_passed_over() {
        let limit = usize::try_from(LINE_BYTES_MAX).unwrap();
        let mut list = vec![b'x'; 3 * limit];
        list.extend_from_slice(b"\nnext\r\n\nlast");
        let mut reader = &list[..];
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut reader).unwrap() {
            lines.push(line.map(|line| String::from_utf8(line).unwrap()));
        }
        let wanted = [None, Some("next"), Some(""), Some("last")];
        assert_eq!(lines, wanted.map(|line| line.map(str::to_owned)));
    }
}
