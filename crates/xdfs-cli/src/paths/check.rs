//! `xdfs check`: compares two trees or files, on any sides.

use std::ffi::OsStr;

use xdfs::operations::{Check, CheckEnd, CheckOptions, CheckStep, Difference};
use xdfs::record::Record;
use xdfs::{Attributes, Code, Fault};

use super::command::PathCommand;
use super::operand::text_of;
use super::side::SideOperand;
use crate::context::Context;
use crate::flags::CheckFlags;
use crate::human;

/// Runs the command and returns the exit code.
pub(crate) fn check(context: &Context, flags: &CheckFlags) -> u8 {
    let mut command = PathCommand::new(context, "check", &flags.common).with_own_sessions();
    command.one(&text_of(&flags.source), |command| compare(command, flags));
    command.finish()
}

/// Attributes of the operand that `word` names, which may have been meant as another place.
fn stat(command: &PathCommand, operand: &SideOperand, word: &OsStr) -> Result<Attributes, Fault> {
    match operand.at.stat(true) {
        Err(fault) if fault.code == Code::NotFound => Err(command.config()?.hinted(fault, [word])),
        other => other,
    }
}

fn compare(command: &mut PathCommand, flags: &CheckFlags) -> Result<(), Fault> {
    let options = CheckOptions {
        digest: flags.digest.into(),
        filter: flags.filter.filter()?,
    };
    let source = command.word_of(&flags.source)?;
    let source = SideOperand::open(command, &source)?;
    let target = command.word_of(&flags.target)?;
    let target = SideOperand::open(command, &target)?;
    let roots = [
        stat(command, &source, &flags.source)?,
        stat(command, &target, &flags.target)?,
    ];
    let mut check = Check::new([&source.at, &target.at], roots, &options)?;
    for step in &mut check {
        match step {
            CheckStep::Equal => {}
            CheckStep::Different(difference) => print(command, &difference),
            CheckStep::Failed(end, fault) => {
                let operand = match end {
                    CheckEnd::Source => &source,
                    CheckEnd::Target => &target,
                };
                command.fault(Some(&operand.text), &fault);
            }
        }
        if command.is_over() {
            return Ok(());
        }
    }
    let counts = check.counts();
    let text = format!(
        "{} equal ({}), {} differ, {} missing, {} extra",
        counts.equal,
        human::size(counts.equal_bytes),
        counts.differs,
        counts.missing,
        counts.extra,
    );
    if command.is_json() {
        command.write_record(&Record::check(&source.text, &target.text, counts));
    }
    command.compared(counts.is_different(), &text);
    Ok(())
}

fn print(command: &mut PathCommand, difference: &Difference) {
    let Difference {
        path,
        source,
        target,
    } = difference;
    let word = match (source, target) {
        (Some(_), Some(_)) => "differs",
        (Some(_), None) => "missing",
        (None, _) => "extra",
    };
    if command.is_json() {
        command.write_record(&Record::difference(path, source.as_ref(), target.as_ref()));
        return;
    }
    let name = command.quoting(false).write(path);
    command.print(&[word.as_bytes(), b" ", &name, b"\n"].concat());
    command.flush();
}
