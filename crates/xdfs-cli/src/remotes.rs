//! `xdfs remotes`: the servers that have a name in the client's configuration.

use xdfs::settings::ClientConfig;

use crate::console::{Console, printable};
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::OutputFlags;
use crate::report::print;

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context) -> u8 {
    let printed = context.config().and_then(|config| {
        let remotes = config.remotes();
        let lines: String = remotes
            .map(|(name, place)| format!("{name} {}\n", printable(&place.to_string())))
            .collect();
        if lines.is_empty()
            && let Some(path) = ClientConfig::path()
        {
            let text = format!("no server has a name in {}", path.display());
            Console::new(OutputFlags::default()).info(&text);
        }
        print(lines)
    });
    match printed {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}
