//! The service manager of `xdfs serve`: systemd, or another one with its protocols.
//!
//! It may hand over listening sockets (LISTEN_FDS), is notified of the states of the server
//! (NOTIFY_SOCKET), and asks for a reload by SIGHUP. Without one, only the reload has an effect.

#[cfg(unix)]
pub(crate) use unix::{Hangup, Notice, notify, sockets};

#[cfg(not(unix))]
pub(crate) use other::{Hangup, Notice, notify, sockets};

#[cfg(unix)]
mod unix {
    use listenfd::ListenFd;
    use nix::sys::signal::{SigSet, Signal};
    use sd_notify::NotifyState;
    use xdfs::{Code, Fault, ListeningSocket};

    /// A state of the server.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Notice {
        /// It serves.
        Ready,
        /// It reads its settings again.
        Reloading,
        /// It ends.
        Stopping,
    }

    /// Notifies the service manager, if there is one.
    pub(crate) fn notify(notice: Notice) {
        let sent = match notice {
            Notice::Ready => sd_notify::notify(&[NotifyState::Ready]),
            Notice::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
            Notice::Reloading => NotifyState::monotonic_usec_now()
                .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now])),
        };
        if let Err(error) = sent {
            tracing::warn!(?notice, %error, "the service manager can't be notified");
        }
    }

    /// The sockets handed over; none without a service manager.
    ///
    /// # Errors
    /// One of them doesn't listen over TCP or on a Unix socket.
    pub(crate) fn sockets() -> Result<Vec<ListeningSocket>, Fault> {
        let mut handed_over = ListenFd::from_env();
        let mut sockets = Vec::new();
        for number in 0..handed_over.len() {
            let socket = match handed_over.take_tcp_listener(number) {
                Ok(socket) => socket.map(ListeningSocket::Tcp),
                Err(_) => handed_over
                    .take_unix_listener(number)
                    .map_err(|error| {
                        let operation = "take over a socket of the service manager";
                        let cause = format!("{error}; it has to be a stream socket that listens");
                        Fault::new(Code::InvalidArgument, operation, cause)
                    })?
                    .map(ListeningSocket::Unix),
            };
            sockets.extend(socket);
        }
        Ok(sockets)
    }

    /// SIGHUP, which no thread handles until it is waited for.
    #[derive(Debug)]
    pub(crate) struct Hangup(SigSet);

    impl Hangup {
        /// Holds the signal back, in this thread and in all that it starts from now on.
        ///
        /// # Errors
        /// The system refuses.
        pub(crate) fn hold() -> Result<Self, Fault> {
            let mut set = SigSet::empty();
            set.add(Signal::SIGHUP);
            set.thread_block().map_err(|error| fault(error.into()))?;
            Ok(Self(set))
        }

        /// Calls `act` for each signal, in a thread of its own.
        ///
        /// # Errors
        /// The thread can't be started.
        pub(crate) fn watch(self, mut act: impl FnMut() + Send + 'static) -> Result<(), Fault> {
            let work = move || {
                while self.0.wait().is_ok() {
                    act();
                }
            };
            let thread = std::thread::Builder::new().name("xdfs-reload".into());
            thread.spawn(work).map(drop).map_err(fault)
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    fn fault(error: std::io::Error) -> Fault {
        Fault::from_io("listen for SIGHUP", "", &error)
    }
}

#[cfg(not(unix))]
mod other {
    use xdfs::{Fault, ListeningSocket};

    /// A state of the server.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Notice {
        /// It serves.
        Ready,
        /// It reads its settings again.
        Reloading,
        /// It ends.
        Stopping,
    }

    pub(crate) fn notify(_notice: Notice) {}

    pub(crate) fn sockets() -> Result<Vec<ListeningSocket>, Fault> {
        Ok(Vec::new())
    }

    /// There is no such signal.
    #[derive(Debug)]
    pub(crate) struct Hangup;

    impl Hangup {
        pub(crate) fn hold() -> Result<Self, Fault> {
            Ok(Self)
        }

        pub(crate) fn watch(self, _act: impl FnMut() + Send + 'static) -> Result<(), Fault> {
            Ok(())
        }
    }
}
