//! Connections that lead to their targets, over one channel or a bundle of them.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::Code;
use xdfs_proto::frame::TunnelRequest;
use xdfs_store::rate::SharedRate;
use xdfs_sys::poll::{Event, Poller};
use xdfs_xio::{Listener, Stream};

use super::dial::TunnelStream;
use super::opening::Opening;
use super::relay::{RelayEnd, Relays};
use super::request::{HandedOver, accept, code_of, record, token};
use super::table::{Begun, BundleName, Place};
use crate::environment::Environment;
use crate::security::{TunnelOutcome, TunnelRights};

/// Maximum time until the first channel has begun its bundle.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A bundle of channels.
struct Bundle {
    listener: Box<dyn Listener>,
    _name: BundleName,
    stage: BundleStage,
}

enum BundleStage {
    /// The first channel hasn't begun it yet.
    Begins { stream: Box<dyn Stream>, link: Link },
    /// It leads to its target, until all bytes have arrived.
    Stands,
}

/// What a connection that leads to its target rests on.
struct Link {
    rights: Arc<dyn TunnelRights>,
    rate: Option<Arc<SharedRate>>,
    request: TunnelRequest,
    place: Place,
    since: Instant,
}

impl Link {
    /// Records its end.
    fn close(self, [to_peer, from_peer]: [u64; 2], now: Instant, result: Option<Code>) {
        let outcome = TunnelOutcome::Closed {
            to_peer,
            from_peer,
            elapsed: now.saturating_duration_since(self.since),
            result,
        };
        record(&*self.rights, &self.request, outcome);
        drop(self.place);
    }
}

/// All connections.
pub(super) struct Links {
    environment: Arc<dyn Environment>,
    relays: Relays,
    /// By the keys of their tunnels.
    bundles: HashMap<u64, Bundle>,
    /// The keys of connections over bundles that have ended.
    ended: (mpsc::Sender<u64>, mpsc::Receiver<u64>),
}

impl Links {
    /// None yet; one that moves nothing for `idle_timeout` ends.
    pub(super) fn new(environment: Arc<dyn Environment>, idle_timeout: Duration) -> Self {
        let relays = Relays::new(idle_timeout, environment.now());
        Self {
            environment,
            relays,
            bundles: HashMap::new(),
            ended: mpsc::channel(),
        }
    }

    /// Whether a bundle hasn't begun yet, so that time has to be watched.
    pub(super) fn begins(&self) -> bool {
        let mut bundles = self.bundles.values();
        bundles.any(|bundle| matches!(bundle.stage, BundleStage::Begins { .. }))
    }

    pub(super) fn has_bundle(&self, key: u64) -> bool {
        self.bundles.contains_key(&key)
    }

    /// Takes an event of the token of a pair.
    pub(super) fn event(&mut self, event: &Event) {
        self.relays.event(event);
    }

    /// Moves what can be moved; see [`Relays::turn`].
    pub(super) fn turn(&mut self, poller: &mut Poller, now: Instant) -> Option<Duration> {
        let wait = self.relays.turn(poller, now);
        while let Ok(key) = self.ended.1.try_recv() {
            self.bundles.remove(&key);
        }
        wait
    }

    /// Ends the connections of such tunnels.
    pub(super) fn end_where(
        &mut self,
        poller: &mut Poller,
        kind: ErrorKind,
        is_ended: impl Fn(u64) -> bool,
    ) {
        self.relays.end_where(poller, kind, &is_ended);
        self.end_bundles(is_ended, code_of(&kind.into()));
    }

    /// Ends the bundles that were not begun in time.
    pub(super) fn check_deadlines(&mut self, now: Instant) {
        let is_late = |bundle: &Bundle| match &bundle.stage {
            BundleStage::Begins { link, .. } => now - link.since >= BEGIN_TIMEOUT,
            BundleStage::Stands => false,
        };
        let late = self.bundles.iter().filter(|(_, bundle)| is_late(bundle));
        let late: Vec<u64> = late.map(|(key, _)| *key).collect();
        self.end_bundles(|key| late.contains(&key), Code::DeadlineExceeded);
    }

    /// Grants a tunnel, which leads to `stream`.
    pub(super) fn lead(
        &mut self,
        poller: &mut Poller,
        opening: Opening,
        stream: Box<dyn Stream>,
        address: Option<IpAddr>,
    ) {
        if !opening.place.lead_to(address) {
            let fault = opening.channel.forbidden();
            return opening.refuse(fault);
        }
        let begun = match opening.channel.request.bundle {
            0 => None,
            _ => match opening.place.begin_bundle(&opening.channel.request) {
                Ok(begun) => Some(begun),
                Err(fault) => return opening.refuse(fault),
            },
        };
        let Opening {
            mut channel, place, ..
        } = opening;
        channel.record(TunnelOutcome::Opened);
        accept(&mut channel.output, stream.peer());
        let HandedOver {
            stream: first,
            input,
            output,
            rights,
            rate,
            request,
            ..
        } = channel;
        let link = Link {
            rights,
            rate,
            request,
            place,
            since: self.environment.now(),
        };
        let Some(begun) = begun else {
            return self.pair(poller, [first, stream], [input, output], link);
        };
        let Begun {
            arrivals,
            mut listener,
            name,
        } = begun;
        // A bundle that has just begun has room for its first channel.
        arrivals.push(TunnelStream::accepted(first, input, output));
        let key = link.place.key();
        let registered = listener.register(poller, token(key, 3));
        let bundle = Bundle {
            listener,
            _name: name,
            stage: BundleStage::Begins { stream, link },
        };
        self.bundles.insert(key, bundle);
        match registered {
            Ok(()) => self.begun(poller, key),
            Err(error) => self.end_bundles(|at| at == key, code_of(&error)),
        }
    }

    /// Moves bytes between a channel, or a bundle of them, and a target.
    fn pair(
        &mut self,
        poller: &mut Poller,
        streams: [Box<dyn Stream>; 2],
        ahead: [Vec<u8>; 2],
        link: Link,
    ) {
        let now = self.environment.now();
        let answer_bytes = ahead[1].len() as u64;
        let (key, rate) = (link.place.key(), link.rate.clone());
        let environment = Arc::clone(&self.environment);
        let bundle = (link.request.bundle != 0).then(|| self.ended.0.clone());
        let on_end = move |end: RelayEnd| {
            if let Some(ended) = bundle {
                // The thread is here, or ends.
                let _ = ended.send(key);
            }
            let bytes = [end.back.saturating_sub(answer_bytes), end.forth];
            let result = end.result.err().map(|error| code_of(&error));
            link.close(bytes, environment.now(), result);
        };
        let added = self
            .relays
            .add(poller, streams, ahead, rate.as_ref(), (key, now), on_end);
        if let Err(error) = added {
            tracing::warn!(%error, "a tunnel could not be watched");
            self.bundles.remove(&key);
        }
    }

    /// The bundle may have begun.
    pub(super) fn begun(&mut self, poller: &mut Poller, key: u64) {
        let Some(bundle) = self.bundles.get_mut(&key) else {
            return;
        };
        match bundle.listener.accept() {
            Ok(first) => {
                let stage = std::mem::replace(&mut bundle.stage, BundleStage::Stands);
                if let BundleStage::Begins { stream, link } = stage {
                    self.pair(poller, [first, stream], [Vec::new(), Vec::new()], link);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.end_bundles(|at| at == key, code_of(&error)),
        }
    }

    /// Ends bundles that have not begun.
    fn end_bundles(&mut self, is_ended: impl Fn(u64) -> bool, result: Code) {
        let now = self.environment.now();
        let begins = |stage: &BundleStage| matches!(stage, BundleStage::Begins { .. });
        let ended = self
            .bundles
            .extract_if(|key, bundle| begins(&bundle.stage) && is_ended(*key));
        for (_, bundle) in ended {
            if let BundleStage::Begins { mut stream, link } = bundle.stage {
                stream.abort();
                link.close([0, 0], now, Some(result));
            }
        }
    }
}
