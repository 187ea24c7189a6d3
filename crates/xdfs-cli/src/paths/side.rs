//! Operands on either side.

use std::ffi::OsStr;
use std::ops::Deref;
use std::sync::Arc;

use xdfs::operations::{PathSide, SidePath};
use xdfs::{Code, Fault};

use super::command::PathCommand;
use super::operand::{Operand, text_of};
use crate::place::Place;

/// An operand on either side.
#[derive(Clone, Debug)]
pub(crate) struct SideOperand {
    /// The word, for messages.
    pub(crate) text: String,
    /// The path, which is `/` if the URL names only the server.
    pub(crate) at: SidePath,
}

impl SideOperand {
    /// An operand, with a session if it is on a server.
    ///
    /// # Errors
    /// It is no path, or the session can't be opened.
    pub(crate) fn open(command: &mut PathCommand, word: &OsStr) -> Result<Self, Fault> {
        let at = match Place::parse(command.config()?, word)? {
            Place::Remote(place) => {
                let operand = Operand::new(word, place);
                let client = Arc::clone(command.client(&operand)?.client());
                SidePath {
                    side: PathSide::Remote(client),
                    path: operand.path,
                }
            }
            Place::Local(path) => {
                SidePath::new(PathSide::Local, path.as_os_str().as_encoded_bytes())
            }
            Place::Standard => {
                let cause = "standard input is not a path";
                return Err(Fault::new(Code::InvalidArgument, "read the path", cause)
                    .hint("name a file; one of this name is written ./-"));
            }
        };
        let text = text_of(word);
        Ok(Self { text, at })
    }
}

impl Deref for SideOperand {
    type Target = SidePath;

    fn deref(&self) -> &SidePath {
        &self.at
    }
}
