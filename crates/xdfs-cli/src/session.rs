//! Opens the sessions of commands, and follows copies in them.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xdfs::operations::Matched;
use xdfs::{
    Address, Code, Fault, LocalPlace, ReconnectEvent, ReconnectObserver, RemotePlace, ReplicaSet,
    Stripes, TransferResult, TreeStripes,
};

use crate::client::{RunningCopy, SharedClient};
use crate::console::Console;
use crate::context::Context;
use crate::flags::{OutputFlags, SessionFlags, StripeFlags};
use crate::interrupt::Interrupt;
use crate::paths::wildcards;
use crate::place::Place;
use crate::replicas::SeveralSources;
use crate::report::{Label, Reporter};

/// Interval of checks for an interrupt, and of progress drawing.
const TICK: Duration = Duration::from_millis(100);

/// Sessions that wait to be used again.
const SPARE_MAX: usize = 32;

/// Opens sessions of the library, all with the same options.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    /// Provides the sessions.
    pub(crate) context: Context,
    /// Their options.
    pub(crate) flags: SessionFlags,
    /// Files are striped.
    stripes: Option<Stripes>,
    /// Files that several servers have.
    several: Option<Arc<SeveralSources>>,
    spare: Arc<Mutex<Vec<(RemotePlace, SharedClient)>>>,
}

impl Connector {
    /// Opens sessions with these options.
    pub(crate) fn new(context: Context, flags: SessionFlags) -> Self {
        Self {
            context,
            flags,
            stripes: None,
            several: None,
            spare: Arc::default(),
        }
    }

    /// The same, for places that are used together.
    pub(crate) fn for_places<'a>(self, places: impl IntoIterator<Item = &'a RemotePlace>) -> Self {
        let SessionFlags { security, .. } = self.flags.clone();
        Self {
            flags: SessionFlags {
                security: security.for_places(places),
                ..self.flags
            },
            spare: Arc::default(),
            ..self
        }
    }

    /// The same, for the places that these words name. Other words are refused elsewhere.
    pub(crate) fn for_words<'a>(self, words: impl IntoIterator<Item = &'a OsString>) -> Self {
        self.for_words_and(words, [])
    }

    /// Like [`Self::for_words`], for others too.
    pub(crate) fn for_words_and<'a, 'b>(
        self,
        words: impl IntoIterator<Item = &'a OsString>,
        others: impl IntoIterator<Item = &'b RemotePlace>,
    ) -> Self {
        let places: Vec<_> = match self.context.config() {
            Ok(config) => {
                let places = words.into_iter().map(|word| Place::parse(config, word));
                places.filter_map(Result::ok).collect()
            }
            Err(_) => Vec::new(),
        };
        let named = places.iter().filter_map(|place| match place {
            Place::Remote(place) => Some(place),
            _ => None,
        });
        let others: Vec<_> = others.into_iter().collect();
        self.for_places(named.chain(others))
    }

    /// The same, with files that are striped.
    pub(crate) fn striped(self, stripes: Option<Stripes>) -> Self {
        Self { stripes, ..self }
    }

    /// A connector with files that several servers have.
    pub(crate) fn with_several(self, several: SeveralSources) -> Self {
        Self {
            several: Some(Arc::new(several)),
            ..self
        }
    }

    /// A connector that asks servers for their groups if files are striped.
    pub(crate) fn with_groups(self) -> Self {
        if self.stripes.is_none() || self.several.is_some() {
            return self;
        }
        let sessions = self.clone();
        self.with_several(SeveralSources::new(Vec::new(), move |place| {
            sessions.connect_source(place)
        }))
    }

    /// The place of the group of a server, with the path of `place`: its members move its files
    /// together. `None` if files aren't striped, or it is no server of xDFS.
    ///
    /// # Errors
    /// The server can't be reached, or is in no group.
    pub(crate) fn group_of(&self, place: &RemotePlace) -> Result<Option<RemotePlace>, Fault> {
        let is_host = matches!(place.address, Address::Host { .. });
        let Some(several) = self.several().filter(|_| is_host && self.stripes.is_some()) else {
            return Ok(None);
        };
        if let Some(group) = several.group_of(place) {
            return Ok(Some(group));
        }
        let client = self.connect(place)?;
        let set = ReplicaSet::of_target(client.client(), place);
        self.leave(place, client);
        let set = set?;
        self.flags.security.login().share_password(&set.places);
        Ok(Some(several.add_group(place, set)))
    }

    /// The groups of the servers that have the ends of a tree. A server that copies within itself
    /// needs none, nor one whose files go to the data nodes of another, or come from them.
    ///
    /// # Errors
    /// As [`Self::group_of`].
    pub(crate) fn tree_stripes(
        &self,
        source: Option<&RemotePlace>,
        target: Option<&RemotePlace>,
    ) -> Result<TreeStripes, Fault> {
        let session = |place: Option<&RemotePlace>| {
            let group = match place {
                Some(place) => self.group_of(place)?,
                None => None,
            };
            let Some(group) = group else {
                return Ok::<_, Fault>(None);
            };
            let session = self.connect(&group)?;
            let client = Arc::clone(session.client());
            self.leave(&group, session);
            Ok(Some(client))
        };
        let ends = [source, target];
        let has_nodes = |end: &&RemotePlace| end.address.traits().stripes;
        let is_within = source
            .zip(target)
            .is_some_and(|(source, target)| source.shares_session(target));
        if is_within || ends.iter().flatten().any(has_nodes) {
            return Ok(TreeStripes::default());
        }
        Ok(TreeStripes {
            source: session(source)?,
            target: session(target)?,
        })
    }

    /// Reports sessions with the members of groups, and those that aren't used any more.
    pub(crate) fn report_members(&self, reporter: &mut Reporter) {
        if let Some(several) = self.several() {
            several.sessions(|client| report_session(client, reporter));
            several.report_dropped(reporter);
        }
    }

    /// Reports what the members of groups have moved.
    pub(crate) fn report_groups(&self, label: &Label, reporter: &mut Reporter) {
        if let Some(several) = self.several() {
            several.report_groups(label, reporter);
        }
    }

    /// The files that several servers have.
    pub(crate) fn several(&self) -> Option<&SeveralSources> {
        self.several.as_deref()
    }

    /// Leaves a session with the server of `place` to the next [`Connector::connect`]: opening one
    /// takes round trips, and a ticket is valid for one only.
    pub(crate) fn leave(&self, place: &RemotePlace, client: SharedClient) {
        let mut spare = self.spare();
        let oldest = (spare.len() >= SPARE_MAX).then(|| spare.remove(0));
        spare.push((place.clone(), client));
        drop(spare);
        // Without the lock, since this waits for its threads.
        drop(oldest);
    }

    fn spare(&self) -> MutexGuard<'_, Vec<(RemotePlace, SharedClient)>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session with the server of `place`.
    ///
    /// # Errors
    /// The session can't be opened.
    pub(crate) fn connect(&self, place: &RemotePlace) -> Result<SharedClient, Fault> {
        // A login that was refused is not repeated: each counts as a guess.
        let is_of_use = |client: &SharedClient| {
            let end = client.ended();
            end.is_none_or(|fault| fault.code == Code::AuthenticationFailed)
        };
        let mut spare = self.spare();
        let found = spare
            .iter()
            .position(|(server, client)| server.shares_session(place) && is_of_use(client));
        if let Some(at) = found {
            return Ok(spare.swap_remove(at).1);
        }
        drop(spare);
        let mut options = self.flags.client_options()?;
        if let Some(stripes) = &self.stripes {
            options.settings = options.settings.with(stripes.clone());
        }
        if let Some(several) = &self.several {
            options.settings = options.settings.with(several.setting().clone());
        }
        self.context.connect(place, options, &self.flags.security)
    }

    /// A session with a source of a file that several servers have. If a pin comes with it, that
    /// one counts instead of the command's, which is that of another server.
    ///
    /// # Errors
    /// The session can't be opened.
    pub(crate) fn connect_source(&self, place: &RemotePlace) -> Result<SharedClient, Fault> {
        let Some(pin) = place.invitation.pin else {
            return self.connect(place);
        };
        let mut pinned = self.clone();
        pinned.flags.security.pin = Some(pin);
        // A ticket is for the server that has issued it.
        pinned.flags.security.ticket_file = None;
        pinned.connect(place)
    }

    /// The words that a word stands for, if it has wildcards on a server, and that server if it was
    /// asked.
    ///
    /// # Errors
    /// Nothing matches, or too much, or the server can't be asked.
    pub(crate) fn words_of(
        &self,
        word: &OsStr,
    ) -> Result<(Vec<OsString>, Option<SharedClient>), Fault> {
        let mut asked = None;
        let words = wildcards::words_of(&self.context, word, Matched::Entries, |place| {
            let client = self.connect(place)?;
            asked = Some(client.clone());
            self.leave(place, client.clone());
            Ok(client)
        });
        Ok((words?, asked))
    }

    /// The one word that a word stands for, if it has wildcards on a server.
    ///
    /// # Errors
    /// Nothing or more than one matches, or the server can't be asked.
    pub(crate) fn word_of(&self, word: &OsStr) -> Result<OsString, Fault> {
        wildcards::only(word, self.words_of(word)?.0)
    }

    /// Asks for secrets that have to be typed for a session with the server of `place`. Opens it
    /// if only that shows whether there are any.
    ///
    /// # Errors
    /// Nothing can be read, or nothing was typed.
    pub(crate) fn ask_ahead(&self, place: &RemotePlace) -> Result<(), Fault> {
        let several = self.several.as_ref();
        let sources = several.map_or(Vec::new(), |several| several.sources(place));
        // A source that can't be used is reported when the others are used in its place.
        for source in sources {
            let _ = self.ask_ahead(&source);
        }
        let security = &self.flags.security;
        self.context.ask_ahead(place, security)?;
        if self.context.may_ask(place, security)? {
            let client = self.connect(place)?;
            self.leave(place, client);
        }
        Ok(())
    }
}

/// Follows a copy to its end, and reports its progress. Calls `on_tick` at each step. After an
/// interrupt, cancels the copy and calls `on_stop` once.
///
/// # Errors
/// The fault that ended it.
pub(crate) fn follow(
    copy: impl Into<RunningCopy>,
    label: &Label,
    reporter: &mut Reporter,
    interrupt: &Interrupt,
    mut on_tick: impl FnMut(&mut Reporter),
    on_stop: impl FnOnce(),
) -> Result<TransferResult, Fault> {
    let mut copy = copy.into();
    let mut on_stop = Some(on_stop);
    reporter.begin(label);
    loop {
        if interrupt.requested()
            && let Some(on_stop) = on_stop.take()
        {
            reporter
                .console()
                .info("stopping in an orderly way; Ctrl-C again stops at once");
            copy.cancel();
            on_stop();
        }
        let progress = copy.progress(TICK);
        on_tick(reporter);
        match progress {
            Some(progress) => reporter.progress(label, &progress),
            None if copy.is_finished() => break,
            None => reporter.tick(),
        }
    }
    copy.wait()
}

/// Informs the user when the session of a tree breaks and when there is another one. Gives up when
/// the user wants to stop.
pub(crate) fn reconnect_observer(
    flags: OutputFlags,
    retries_max: u32,
    interrupt: &Interrupt,
) -> ReconnectObserver {
    let interrupt = interrupt.clone();
    ReconnectObserver::new(move |event| {
        match event {
            ReconnectEvent::Lost {
                fault,
                retry,
                pause,
            } => Console::new(flags).info(&format!(
                "{fault}; retry {retry} of {retries_max} in {:.1} s",
                pause.as_secs_f64()
            )),
            ReconnectEvent::Restored => Console::new(flags).info("connection restored"),
            _ => {}
        }
        match interrupt.requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })
}

/// The fault of a tree whose client was closed, though the user didn't stop it: the server that was
/// started through ssh has ended.
pub(crate) fn lost_with_ssh(fault: Fault, interrupt: &Interrupt) -> Fault {
    let is_closed = fault.code == Code::Cancelled && fault.operation == "use a session";
    if !is_closed || interrupt.requested() {
        return fault;
    }
    let cause = "ssh has ended, and the server there with it";
    Fault::new(Code::ConnectionLost, "keep the connection", cause)
        .hint("run the same command again to resume")
}

/// Reports a server that was trusted on first use, and decisions about the network path.
pub(crate) fn report_session(client: &SharedClient, reporter: &mut Reporter) {
    if let Some(server) = client.first_use() {
        reporter.first_use(&server);
    }
    for decision in client.take_path_decisions() {
        reporter.path_decision(client.place(), &decision);
    }
}

/// The text of a local source or target.
pub(crate) fn local_text(place: &LocalPlace) -> String {
    match place {
        LocalPlace::Path(path) => path.to_string_lossy().into_owned(),
        LocalPlace::Memory => "memory".into(),
        // Standard streams; variants added later are never created here.
        _ => "-".into(),
    }
}

/// A local file.
pub(crate) fn local_file(path: impl Into<PathBuf>) -> LocalPlace {
    LocalPlace::Path(path.into())
}

/// Refuses stripes where a file would go to no server, and come from none, that can have any.
pub(crate) fn check_stripes(
    context: &Context,
    flags: &StripeFlags,
    (sources, target): (&[OsString], &OsStr),
) -> Result<(), Fault> {
    if !flags.stripe {
        return Ok(());
    }
    let config = context.config()?;
    let may_have = |word: &OsStr| {
        let place = Place::parse(config, word)?;
        // Servers of xDFS may be in groups.
        let may = |place: &RemotePlace| {
            place.address.traits().stripes || matches!(place.address, Address::Host { .. })
        };
        Ok::<_, Fault>(matches!(place, Place::Remote(place) if may(&place)))
    };
    if may_have(target)? {
        return Ok(());
    }
    let mut others = 0;
    for source in sources {
        others += usize::from(!may_have(source)?);
    }
    if others == 0 {
        return Ok(());
    }
    let cause = "only servers of GridFTP have stripes, and groups of servers of xDFS";
    Err(Fault::new(Code::InvalidArgument, "stripe files", cause)
        .hint("leave out --stripe: with xDFS, -n is the number of channels"))
}
