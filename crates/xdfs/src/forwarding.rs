//! A store that passes calls about paths on to the server of a client, so that other processes can
//! share its session: the store of [`ServerBuilder::bind_forwarding`](crate::ServerBuilder).
//!
//! Only calls that are short, or that end when nobody wants them any more, are passed on. Those
//! that read whole files or remove trees run at the server until their session ends, and this
//! session outlives the process that asks. Transfers, packs and open files are not passed on
//! either.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{Code, Fault, Side};
use xdfs_store::{Store, check_cancelled};

use crate::client::Client;
use crate::paths::{Caller, RunningCall};
use crate::retry::is_session_lost;
use crate::server::{Server, ServerBuilder};

/// Interval between two checks whether a pending call is cancelled.
const TICK: Duration = Duration::from_millis(50);

/// The names on the server of a client.
#[derive(Debug)]
pub(crate) struct ForwardingStore {
    client: Arc<Client>,
}

impl ServerBuilder {
    /// Opens all listeners of a server that passes calls about paths on to the server of `client`,
    /// in its session, so that programs on this machine can share it. If that breaks, another one
    /// is opened. Whoever can connect has the rights of the session, without a login: listen on a
    /// Unix socket in a directory of your own.
    ///
    /// Calls that can't be cancelled (checksums, copies within the server, the removal of trees),
    /// open files and transfers are refused. The settings about what is served and to whom (`root`,
    /// `read_only`, `private`, `security`) are not used, and they can't be reloaded.
    ///
    /// # Errors
    /// An address can't be bound, or isn't a loopback address although `insecure` isn't set.
    pub fn bind_forwarding(self, client: Arc<Client>) -> Result<Server, Fault> {
        self.bind_store(Arc::new(ForwardingStore::new(client)))
    }
}

impl ForwardingStore {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self { client }
    }

    /// Makes the call in one session. Sets `has_parts` once a part was passed on.
    fn pass_on(
        caller: &Caller,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
        has_parts: &mut bool,
    ) -> Result<Answer, Fault> {
        let mut running = caller.start(call.clone())?;
        loop {
            let (answer, last) = wait(&mut running)?;
            if last {
                return Ok(answer);
            }
            *has_parts = true;
            part(answer)?;
            running.took();
        }
    }
}

impl Store for ForwardingStore {
    fn is_slow(&self) -> bool {
        true
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        if !is_passed_on(call) {
            let cause = "a shared session doesn't pass this on";
            return Err(Fault::new(Code::Unsupported, call.operation(), cause)
                .path(call.path())
                .hint("use a session of your own"));
        }
        let sessions = self.client.sessions();
        let (mut generation, mut caller) = sessions.caller();
        if caller.ended().is_some_and(|fault| is_session_lost(&fault)) {
            (generation, caller) = sessions.replace(generation)?;
        }
        let mut has_parts = false;
        let mut answer = Self::pass_on(&caller, call, part, &mut has_parts);
        if let Err(fault) = &answer
            && is_session_lost(fault)
            && caller.is_over(fault)
            && only_looks(call)
            && !has_parts
        {
            // Once: a session that breaks again is the next caller's problem.
            let (_, caller) = sessions.replace(generation)?;
            answer = Self::pass_on(&caller, call, part, &mut has_parts);
        }
        answer.map_err(|fault| match (fault.side, fault.ends_session) {
            // The reader would take it for a failure of the session with this store.
            (Side::Local, true) => Fault {
                cause: format!("the shared session has failed: {}", fault.cause),
                ..fault
            },
            _ => fault,
        })
    }

    xdfs_store::defaults!(Store: open_source, open_sink, check_sink, read_pack, write_pack,
        packs_wait, open_file);
}

/// Whether a call may be made in the session of another process.
fn is_passed_on(call: &Call) -> bool {
    let changes = matches!(
        call,
        Call::MakeDirectory { .. }
            | Call::RemoveFile { .. }
            | Call::RemoveDirectory { .. }
            | Call::Rename { .. }
            | Call::Link { .. }
            | Call::Symlink { .. }
            | Call::SetMode { .. }
            | Call::SetTimes { .. }
            | Call::SetOwner { .. }
            | Call::RemovePartial { .. }
    );
    changes || only_looks(call)
}

/// Whether a call changes nothing, so that it may be repeated.
fn only_looks(call: &Call) -> bool {
    matches!(
        call,
        Call::Stat { .. }
            | Call::List { .. }
            | Call::ReadLink { .. }
            | Call::Space { .. }
            | Call::ListPartial { .. }
            | Call::LookUp { .. }
            | Call::SettableOwners { .. }
    )
}

/// Waits for the next part of an answer, and whether it is the last.
///
/// # Errors
/// The fault of the call, or the one that cancels it.
fn wait(running: &mut RunningCall) -> Result<(Answer, bool), Fault> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(part) = running.poll_next(&mut context) {
            return part;
        }
        thread::park_timeout(TICK);
        check_cancelled()?;
    }
}

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
