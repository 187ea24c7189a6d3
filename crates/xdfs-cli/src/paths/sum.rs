//! `xdfs sum`: digests of files on either side, and lists of them checked.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal as _};
use std::path::Path;

use xdfs::operations::{PathSide, Sum, SumCheck, SumStep, SumTree, Sums, escaped_name};
use xdfs::record::Record;
use xdfs::{ChecksumKind, Code, Fault, Quoting};

use super::command::PathCommand;
use super::operand::text_of;
use super::side::SideOperand;
use crate::context::Context;
use crate::flags::SumFlags;

/// Runs the command and returns the exit code.
pub(crate) fn sum(context: &Context, flags: &SumFlags) -> u8 {
    let mut command = PathCommand::new(context, "sum", &flags.common).with_own_sessions();
    if let Some(list) = &flags.check {
        command.one(&text_of(list.as_os_str()), |command| {
            check(command, flags, list)
        });
        return command.finish();
    }
    if flags.recursive {
        command.one(&joined(&flags.places), |command| {
            let root = command.word_of(single(&flags.places)?)?;
            let root = SideOperand::open(command, &root)?;
            sum_tree(command, flags, &root)
        });
        return command.finish();
    }
    for word in &command.expanded(&flags.places) {
        if command.is_over() {
            break;
        }
        command.one(&text_of(word), |command| {
            let operand = SideOperand::open(command, word)?;
            let mut sums = Sums::new(&operand.at.side, flags.digest.into());
            let path = operand.at.path.clone();
            sums.push(path.clone(), path, None);
            let report = Report::new(&operand);
            while let Some(sum) = sums.pop() {
                report.write(command, sum);
            }
            Ok(())
        });
    }
    command.finish()
}

fn joined(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| text_of(word)).collect();
    words.join(" ")
}

/// The only operand.
fn single(words: &[OsString]) -> Result<&OsStr, Fault> {
    match words {
        [only] => Ok(only),
        _ => {
            let cause = "several directories, while the paths are relative to one";
            Err(Fault::new(Code::InvalidArgument, "compute digests", cause)
                .hint("run the command for one after the other"))
        }
    }
}

fn sum_tree(command: &mut PathCommand, flags: &SumFlags, root: &SideOperand) -> Result<(), Fault> {
    let report = Report::new(root);
    for step in SumTree::new(&root.at, root.at.stat(true)?, flags.digest.into()) {
        match step {
            SumStep::Sum(sum) => report.write(command, sum),
            SumStep::Failed(fault) => command.fault(Some(&root.text), &fault),
        }
        if command.is_over() {
            break;
        }
    }
    Ok(())
}

/// The reasons for which a path in a list may not be found.
fn missing_hint(side: &PathSide, name: &[u8]) -> &'static str {
    match (side, name.first()) {
        (PathSide::Local, Some(b'/')) => {
            "the path of a file on a server needs the server: xdfs sum -c FILE xdfs://HOST/"
        }
        _ => "relative paths begin in PLACE, or without it in the current directory",
    }
}

/// Writes digests to standard output.
struct Report<'a> {
    root: &'a SideOperand,
    quoting: Option<Quoting>,
}

impl<'a> Report<'a> {
    fn new(root: &'a SideOperand) -> Self {
        Self {
            root,
            quoting: std::io::stdout().is_terminal().then_some(Quoting::Shell),
        }
    }

    fn write(&self, command: &mut PathCommand, sum: Sum) {
        let matches = sum.matches();
        let (value, bytes) = match sum.digest {
            Ok(found) => found,
            Err(fault) => {
                let fault = match fault.code {
                    Code::IsDirectory => fault.hint("use --recursive for all files in it"),
                    Code::NotFound if sum.expected.is_some() => {
                        fault.hint(missing_hint(&self.root.at.side, &sum.name))
                    }
                    _ => fault,
                };
                return command.fault(Some(&self.root.text), &fault);
            }
        };
        if command.is_json() {
            let operand = &self.root.text;
            command.write_record(&Record::sum(operand, &sum.name, bytes, &value, matches));
            return;
        }
        let (mark, name) = match self.quoting {
            Some(quoting) => (&b""[..], quoting.write(&sum.name)),
            None => escaped_name(&sum.name),
        };
        let line = match matches {
            None => [mark, value.hex().as_bytes(), b"  ", &name, b"\n"].concat(),
            Some(true) => [mark, &name, b": OK\n"].concat(),
            Some(false) => [mark, &name, b": FAILED\n"].concat(),
        };
        command.print(&line);
        // A digest may take minutes.
        command.flush();
    }
}

/// Checks the digests of a list.
fn check(command: &mut PathCommand, flags: &SumFlags, list: &Path) -> Result<(), Fault> {
    let here = OsString::from(".");
    let root = match flags.places.as_slice() {
        [] => here.as_os_str(),
        places => single(places)?,
    };
    let root = command.word_of(root)?;
    let root = SideOperand::open(command, &root)?;
    let list_name = list.as_os_str().as_encoded_bytes();
    let lines: Box<dyn BufRead> = match list_name {
        b"-" => Box::new(BufReader::new(std::io::stdin())),
        _ => {
            let failed = |error| Fault::from_io("read the digests", list_name, &error);
            Box::new(BufReader::new(File::open(list).map_err(failed)?))
        }
    };
    let kind = ChecksumKind::from(flags.digest);
    let report = Report::new(&root);
    let mut sums = SumCheck::new(&root.at, lines, list_name, kind);
    let mut different = 0_u64;
    for sum in &mut sums {
        let sum = sum?;
        different += u64::from(sum.matches() == Some(false));
        report.write(command, sum);
        if command.is_over() {
            break;
        }
    }
    if different > 0 {
        let hint = match kind {
            ChecksumKind::Blake3 => "; those of sha256sum need --digest sha256",
            _ => "",
        };
        let text = format!("{different} of {} digests differ{hint}", sums.lines_read());
        command.compared(true, &text);
    }
    Ok(())
}
