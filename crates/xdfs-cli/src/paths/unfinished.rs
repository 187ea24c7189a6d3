//! The unfinished transfers into a directory of a server.

use xdfs::operations::unexpected_answer;
use xdfs::{Answer, Call, Client, Code, Fault, PartialFile, PendingCall};

/// The names of the targets of unfinished transfers into a directory.
///
/// # Errors
/// The server can't tell.
pub(super) fn targets(client: &Client, directory: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let asked = client.start_call(call(directory, Vec::new()));
    let files = finish(client, directory, asked)?;
    Ok(files.into_iter().map(|file| file.name).collect())
}

/// The call for them, behind one of the names.
pub(super) fn call(directory: &[u8], after: Vec<u8>) -> Call {
    Call::ListPartial {
        path: directory.to_vec(),
        after,
    }
}

/// All of them, of which the first were asked for.
///
/// # Errors
/// The server can't tell.
pub(super) fn finish(
    client: &Client,
    directory: &[u8],
    asked: Result<PendingCall, Fault>,
) -> Result<Vec<PartialFile>, Fault> {
    let mut answer = asked
        .and_then(PendingCall::wait)
        .map_err(|fault| match fault.code {
            Code::Unsupported => fault.hint("this server is too old for it"),
            _ => fault,
        })?;
    let mut all: Vec<PartialFile> = Vec::new();
    loop {
        let Answer::Partial { files, more } = answer else {
            return Err(unexpected_answer(
                "list the unfinished transfers in",
                directory,
            ));
        };
        // In their order, so a server can't make this go on for ever.
        let last = all.last().map(|last| last.name.clone());
        if files.first().map(|first| &first.name) <= last.as_ref() && last.is_some() {
            return Err(unexpected_answer(
                "list the unfinished transfers in",
                directory,
            ));
        }
        all.extend(files);
        let Some(last) = all.last().filter(|_| more) else {
            return Ok(all);
        };
        answer = client.call(call(directory, last.name.clone()))?;
    }
}
