//! Patterns of names on servers as sources of `xdfs cp`.

use xdfs::Fault;

use crate::console::Console;
use crate::flags::CpFlags;
use crate::session::Connector;

/// Replaces each source on a server that is a pattern by the paths that match, sorted. A path that
/// exists as it is written stays.
///
/// # Errors
/// Nothing matches, or too much, or the server can't be asked.
pub(super) fn expand_sources(connector: &Connector, flags: &mut CpFlags) -> Result<(), Fault> {
    let mut sources = Vec::with_capacity(flags.places.sources.len());
    for word in &flags.places.sources {
        let (words, asked) = connector.words_of(word)?;
        if let Some(server) = asked.and_then(|client| client.first_use()) {
            Console::new(flags.output).first_use(&server, !flags.output.json);
        }
        sources.extend(words);
    }
    flags.places.sources = sources;
    Ok(())
}
