//! `xdfs verify-manifest`: checks files against the manifest of a job.

use xdfs::operations::path::join;
use xdfs::operations::{Sum, Sums};
use xdfs::record::{CheckCounts, Record};
use xdfs::{ChecksumKind, Code, Fault};
use xdfs_service::{ListedFile, Manifest, manifest_key_file, read_manifest_key};

use super::command::PathCommand;
use super::operand::text_of;
use super::side::SideOperand;
use crate::context::Context;
use crate::flags::VerifyFlags;
use crate::human;
use crate::state;

/// Runs the command and returns the exit code.
pub(crate) fn verify_manifest(context: &Context, flags: &VerifyFlags) -> u8 {
    let command = PathCommand::new(context, "verify-manifest", &flags.common);
    let mut command = command.with_own_sessions();
    command.one(&text_of(flags.manifest.as_os_str()), |command| {
        verify(command, flags)
    });
    command.finish()
}

fn verify(command: &mut PathCommand, flags: &VerifyFlags) -> Result<(), Fault> {
    let key = match (
        &flags.signer,
        flags.data.data.clone().or_else(state::service),
    ) {
        (Some(key), _) => read_manifest_key(key)?,
        (None, Some(folder)) => {
            read_manifest_key(&manifest_key_file(&folder)).map_err(|fault| match fault.code {
                Code::NotFound => fault.hint(
                    "name the service's public key with --signer: manifest-key.pub in its folder",
                ),
                _ => fault,
            })?
        }
        (None, None) => {
            let cause = "neither XDFS_STATE_DIR nor HOME is set";
            let fault = Fault::new(Code::NotFound, "find the key of the service", cause);
            return Err(fault.hint("name one with --signer"));
        }
    };
    let manifest = Manifest::open(&flags.manifest, &key)?;
    let word = command.word_of(&flags.directory)?;
    let root = SideOperand::open(command, &word)?;
    root.at.stat(true)?;
    let mut counts = CheckCounts::default();
    let mut sums = Sums::new(&root.at.side, ChecksumKind::Blake3);
    // Sizes of those that are being read, in the same order.
    let mut sizes = std::collections::VecDeque::new();
    for file in manifest {
        let ListedFile {
            position,
            path,
            bytes,
            blake3,
            ..
        } = file?;
        if flags.transfer.is_some_and(|only| only != position) {
            continue;
        }
        sizes.push_back(bytes);
        let at = join(&root.at.path, path.as_bytes());
        if let Some(sum) = sums.push(at, path.as_bytes().to_vec(), Some(blake3)) {
            take(command, &root, sum, sizes.pop_front(), &mut counts);
        }
        if command.is_over() {
            return Ok(());
        }
    }
    while let Some(sum) = sums.pop() {
        take(command, &root, sum, sizes.pop_front(), &mut counts);
    }
    let text = format!(
        "{} equal ({}), {} differ, {} missing",
        counts.equal,
        human::size(counts.equal_bytes),
        counts.differs,
        counts.missing,
    );
    if command.is_json() {
        let manifest = text_of(flags.manifest.as_os_str());
        command.write_record(&Record::check(&manifest, &root.text, counts));
    }
    command.compared(counts.is_different(), &text);
    Ok(())
}

/// Takes what a file is, which has this size in the manifest.
fn take(
    command: &mut PathCommand,
    root: &SideOperand,
    sum: Sum,
    size: Option<u64>,
    counts: &mut CheckCounts,
) {
    let size = size.unwrap_or(0);
    let found = match (&sum.digest, sum.matches()) {
        (Ok((_, length)), Some(true)) if *length == size => {
            counts.equal += 1;
            counts.equal_bytes = counts.equal_bytes.saturating_add(size);
            return;
        }
        (Ok((_, length)), _) => Some(Some(*length)),
        (Err(fault), _) => match fault.code {
            Code::NotFound | Code::NotDirectory => None,
            Code::IsDirectory | Code::NotRegularFile => Some(None),
            _ => {
                command.fault(Some(&root.text), fault);
                return;
            }
        },
    };
    let word = match found {
        Some(_) => {
            counts.differs += 1;
            "differs"
        }
        None => {
            counts.missing += 1;
            "missing"
        }
    };
    if command.is_json() {
        command.write_record(&Record::file_difference(&sum.name, size, found));
        return;
    }
    let name = command.quoting(false).write(&sum.name);
    command.print(&[word.as_bytes(), b" ", &name, b"\n"].concat());
    command.flush();
}
