//! Wildcards in paths on servers, as operands of any command.

use std::ffi::{OsStr, OsString};

use xdfs::operations::{
    Matched, matching_paths, pattern_of_path, pattern_of_url, split_invitation,
};
use xdfs::{Code, Fault, RemotePlace};

use crate::client::SharedClient;
use crate::console::warn;
use crate::context::Context;
use crate::place::{Place, shown, word_of};

/// The words that a word stands for: one for each path that matches, sorted, if it has wildcards on
/// a server, and otherwise the word itself. `connect` opens a session with the server of a place.
///
/// # Errors
/// Nothing matches, or too much, or the server can't be asked.
pub(crate) fn words_of(
    context: &Context,
    word: &OsStr,
    matched: Matched,
    connect: impl FnOnce(&RemotePlace) -> Result<SharedClient, Fault>,
) -> Result<Vec<OsString>, Fault> {
    let itself = || Ok(vec![word.to_owned()]);
    // Other places, and what is wrong with them, are the command's.
    let Ok(Place::Remote(place)) = Place::parse(context.config()?, word) else {
        return itself();
    };
    // A URL is text.
    let url = word.to_string_lossy();
    let (pattern, query) = match place.profile {
        Some(_) if context.has_expanded(&place) => return itself(),
        Some(_) => (pattern_of_path(&place.path), ""),
        None => (pattern_of_url(&url), split_invitation(&url).1),
    };
    let Some(pattern) = pattern else {
        return itself();
    };
    let client = connect(&place)?;
    let mut unlisted = |fault: &Fault| warn(fault);
    let paths = matching_paths(&client, &place.path, &pattern, matched, &mut unlisted)?;
    let Some(paths) = paths else {
        return itself();
    };
    let words = paths.into_iter().map(|path| {
        let found = RemotePlace {
            path,
            ..place.clone()
        };
        let mut word = word_of(&found).ok_or_else(|| {
            let cause = "names with these bytes are not possible on this system";
            Fault::new(Code::InvalidArgument, "find", cause).path(found.path)
        })?;
        word.push(query);
        Ok(word)
    });
    words.collect()
}

/// The only one of the words that a word stands for.
///
/// # Errors
/// There is more than one.
pub(crate) fn only(word: &OsStr, mut words: Vec<OsString>) -> Result<OsString, Fault> {
    let count = words.len();
    match words.pop() {
        Some(only) if count == 1 => Ok(only),
        _ => {
            let cause = format!("{count} names match, and one is needed");
            Err(Fault::new(Code::InvalidArgument, "find", cause).path(shown(word)))
        }
    }
}
