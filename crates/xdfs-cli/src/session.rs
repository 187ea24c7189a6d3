//! Sessions as the commands open them, and how a copy in one is followed.

use std::path::PathBuf;
use std::time::Duration;

use xdfs::{Fault, LocalPlace, RemotePlace, TransferResult};

use crate::client::{Copying, SharedClient};
use crate::context::Context;
use crate::flags::SessionFlags;
use crate::interrupt::Interrupt;
use crate::report::{Label, Reporter};

/// How often the wish to stop is looked at, and progress drawn.
const TICK: Duration = Duration::from_millis(100);

/// Opens sessions of the library, all with the same options.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    /// Where they come from.
    pub(crate) context: Context,
    /// How they are.
    pub(crate) flags: SessionFlags,
}

impl Connector {
    /// A session with the server of `place`.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn connect(&self, place: &RemotePlace) -> Result<SharedClient, Fault> {
        let options = self.flags.client_options();
        self.context.connect(place, options, &self.flags.security)
    }

    /// Asks for what has to be typed for a session with the server of `place`.
    ///
    /// # Errors
    /// Nothing can be read, or nothing was typed.
    pub(crate) fn ask_ahead(&self, place: &RemotePlace) -> Result<(), Fault> {
        self.context.ask_ahead(place, &self.flags.security)
    }
}

/// Follows a copy to its end and reports its progress. Calls `on_tick` at each step, and `on_stop`
/// once if the user wants to stop; the copy itself is cancelled here.
///
/// # Errors
/// The fault that ended it.
pub(crate) fn follow(
    copying: impl Into<Copying>,
    label: &Label,
    reporter: &mut Reporter,
    interrupt: &Interrupt,
    mut on_tick: impl FnMut(&mut Reporter),
    on_stop: impl FnOnce(),
) -> Result<TransferResult, Fault> {
    let mut copying = copying.into();
    let mut on_stop = Some(on_stop);
    reporter.begin(label);
    loop {
        if interrupt.requested()
            && let Some(on_stop) = on_stop.take()
        {
            reporter
                .console()
                .say("stopping in an orderly way; Ctrl-C again stops at once");
            copying.cancel();
            on_stop();
        }
        let progress = copying.progress(TICK);
        on_tick(reporter);
        match progress {
            Some(progress) => reporter.progress(label, &progress),
            None if copying.is_finished() => break,
            None => reporter.tick(),
        }
    }
    copying.wait()
}

/// Tells the user of servers that are trusted from now on.
pub(crate) fn tell_first_use(client: &SharedClient, reporter: &mut Reporter) {
    if let Some(server) = client.first_use() {
        reporter.first_use(&server);
    }
}

/// The words for a local end.
pub(crate) fn local_text(place: &LocalPlace) -> String {
    match place {
        LocalPlace::Path(path) => path.to_string_lossy().into_owned(),
        LocalPlace::Memory => "memory".into(),
        // Standard streams; the library may learn others, which are never made here.
        _ => "-".into(),
    }
}

/// A local file.
pub(crate) fn local_file(path: impl Into<PathBuf>) -> LocalPlace {
    LocalPlace::Path(path.into())
}
