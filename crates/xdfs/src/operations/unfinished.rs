//! The unfinished transfers into a directory of a server.

use xdfs_proto::{Code, Fault};

use super::calls::unexpected_answer;
use crate::client::Client;
use crate::paths::{Answer, Call, PartialFile, PendingCall};

const OPERATION: &str = "list the unfinished transfers in";

/// A listing in progress of the unfinished transfers into a directory, without those below it.
#[derive(Debug)]
pub struct UnfinishedListing {
    directory: Vec<u8>,
    asked: Result<PendingCall, Fault>,
}

impl UnfinishedListing {
    /// Starts to list them.
    #[must_use]
    pub fn begin(client: &Client, directory: &[u8]) -> Self {
        Self {
            directory: directory.to_vec(),
            asked: client.start_call(call(directory, Vec::new())),
        }
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &[u8] {
        &self.directory
    }

    /// Waits for all of them, in the order of the names of their targets. `client` is that of the
    /// beginning.
    ///
    /// # Errors
    /// The directory can't be listed, or the server can't tell.
    pub fn finish(self, client: &Client) -> Result<Vec<PartialFile>, Fault> {
        let Self { directory, asked } = self;
        let mut answer = asked
            .and_then(PendingCall::wait)
            .map_err(|fault| match fault.code {
                Code::Unsupported => fault.hint("this server is too old for it"),
                _ => fault,
            })?;
        let mut all: Vec<PartialFile> = Vec::new();
        loop {
            let Answer::Partial { files, more } = answer else {
                return Err(unexpected_answer(OPERATION, &directory));
            };
            // In their order, so a server can't make this go on for ever.
            let last = all.last().map(|last| last.name.clone());
            if files.first().map(|first| &first.name) <= last.as_ref() && last.is_some() {
                return Err(unexpected_answer(OPERATION, &directory));
            }
            all.extend(files);
            let Some(last) = all.last().filter(|_| more) else {
                return Ok(all);
            };
            answer = client.call(call(&directory, last.name.clone()))?;
        }
    }
}

/// The call for those behind one of the names.
fn call(directory: &[u8], after: Vec<u8>) -> Call {
    Call::ListPartial {
        path: directory.to_vec(),
        after,
    }
}
