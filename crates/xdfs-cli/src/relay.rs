//! `xdfs relay`: a server whose users reach nothing but their parcels, and routes.

use std::fs;
use std::path::Path;

use xdfs::{Fault, RelaySettings};

use crate::console::Console;
use crate::context::Context;
use crate::flags::{OutputFlags, RelayFlags, ServeFlags};
use crate::{parcels, routes, serve};

/// The directory in the spool that is served, which stays empty.
const SERVED: &str = "served";

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context, flags: RelayFlags) -> u8 {
    if let Some(command) = &flags.command {
        return parcels::run(context, command);
    }
    match serve_flags(flags) {
        Ok(flags) => serve::run(flags),
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

/// The server that the relay is.
fn serve_flags(flags: RelayFlags) -> Result<ServeFlags, Fault> {
    let routes = flags.routes.as_deref().map(routes::read).transpose()?;
    let routes = routes.unwrap_or_default();
    // The command line has it, unless there is a command.
    let spool = flags.spool.unwrap_or_default();
    let path = spool.as_os_str().as_encoded_bytes();
    let fault = |error| Fault::from_io("make the spool", path, &error);
    make_private(&spool).map_err(fault)?;
    let root = spool.join(SERVED);
    make_private(&root).map_err(fault)?;
    let relay = RelaySettings {
        spool,
        bytes_max: flags.spool_max,
        bytes_per_user_max: flags.user_max,
        routes,
    };
    Ok(ServeFlags {
        listen: flags.listen,
        gridftp: flags.ftp,
        root: Some(root),
        read_only: Some(true),
        connect_to: flags.connect_to,
        config: flags.config,
        log: flags.log,
        relay: Some(relay),
        ..ServeFlags::default()
    })
}

/// Makes a directory that only this user may use, unless it is there.
fn make_private(path: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}
