//! Connections that lead to their targets, over one channel or a bundle of them.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use xdfs_proto::frame::TunnelRequest;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::rate::SharedRate;
use xdfs_xio::{Listener, Stream};

use super::bundle::Arrivals;
use super::dial::TunnelStream;
use super::relay::RelayEnd;
use super::service::{HandedOver, Opening, Place, Shared, accept, action_of, code_of, token};
use super::work::Loop;
use super::{OPEN_TUNNEL, TunnelEvent, TunnelOutcome, TunnelRights};

/// Bundles at once: each may hold two windows of 8 MiB.
const BUNDLES_MAX: usize = 256;

/// The name of a bundle, which channels can join while this lives.
struct BundleName {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for BundleName {
    fn drop(&mut self) {
        self.shared.lock_bundles().remove(&self.number);
    }
}

/// A bundle of channels.
pub(super) struct Bundle {
    listener: Box<dyn Listener>,
    _name: BundleName,
    pub(super) stage: BundleStage,
}

pub(super) enum BundleStage {
    /// The first channel hasn't begun it yet.
    Begins { stream: Box<dyn Stream>, link: Link },
    /// It leads to its target, until all bytes have arrived.
    Stands,
}

/// What a connection that leads to its target rests on.
pub(super) struct Link {
    rights: Arc<dyn TunnelRights>,
    rate: Option<Arc<SharedRate>>,
    request: TunnelRequest,
    place: Place,
    pub(super) since: Instant,
}

impl Link {
    /// Records its end.
    fn close(self, [to_peer, from_peer]: [u64; 2], now: Instant, result: Option<Code>) {
        self.rights.record(&TunnelEvent {
            action: action_of(self.request.purpose),
            target: &self.request.target,
            outcome: TunnelOutcome::Closed {
                to_peer,
                from_peer,
                elapsed: now.saturating_duration_since(self.since),
                result,
            },
        });
        drop(self.place);
    }
}

impl Loop {
    /// Grants a tunnel, which leads to `stream`.
    pub(super) fn lead(
        &mut self,
        opening: Opening,
        stream: Box<dyn Stream>,
        address: Option<IpAddr>,
    ) {
        let Opening {
            mut channel,
            target,
            place,
            ..
        } = opening;
        place.lead_to(address);
        let action = action_of(channel.request.purpose);
        if !channel.is_allowed(action, &target, address) {
            let fault = channel.forbidden();
            channel.record(TunnelOutcome::Refused(fault.code));
            return channel.refuse(fault);
        }
        let bundle = channel.request.bundle;
        let arrivals = match bundle {
            0 => None,
            number => match begin_bundle(&place.shared, number, &channel.request.target) {
                Ok(begun) => Some(begun),
                Err(fault) => {
                    channel.record(TunnelOutcome::Refused(fault.code));
                    return channel.refuse(fault);
                }
            },
        };
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
        match arrivals {
            None => self.pair([first, stream], [input, output], link),
            Some((arrivals, listener, name)) => {
                // A bundle that has just begun has room for its first channel.
                arrivals.push(TunnelStream::accepted(first, input, output));
                let bundle = Bundle {
                    listener,
                    _name: name,
                    stage: BundleStage::Begins { stream, link },
                };
                self.add_bundle(bundle);
            }
        }
    }

    /// Moves bytes between a channel, or a bundle of them, and a target.
    fn pair(&mut self, streams: [Box<dyn Stream>; 2], ahead: [Vec<u8>; 2], link: Link) {
        let now = self.environment.now();
        let answer_bytes = ahead[1].len() as u64;
        let (key, rate) = (link.place.key, link.rate.clone());
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
        let added = self.relays.add(
            &mut self.poller,
            streams,
            ahead,
            rate.as_ref(),
            (key, now),
            on_end,
        );
        if let Err(error) = added {
            tracing::warn!(%error, "a tunnel could not be watched");
            self.bundles.remove(&key);
        }
    }

    /// Waits until the first channel has begun a bundle.
    fn add_bundle(&mut self, mut bundle: Bundle) {
        let BundleStage::Begins { link, .. } = &bundle.stage else {
            return;
        };
        let key = link.place.key;
        let registered = bundle.listener.register(&mut self.poller, token(key, 3));
        self.bundles.insert(key, bundle);
        match registered {
            Ok(()) => self.begun(key),
            Err(error) => self.end_bundles(|at| at == key, code_of(&error)),
        }
    }

    /// The bundle may have begun.
    pub(super) fn begun(&mut self, key: u64) {
        let Some(bundle) = self.bundles.get_mut(&key) else {
            return;
        };
        match bundle.listener.accept() {
            Ok(first) => {
                let stage = std::mem::replace(&mut bundle.stage, BundleStage::Stands);
                if let BundleStage::Begins { stream, link } = stage {
                    self.pair([first, stream], [Vec::new(), Vec::new()], link);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.end_bundles(|at| at == key, code_of(&error)),
        }
    }

    /// Ends bundles that have not begun.
    pub(super) fn end_bundles(&mut self, is_ended: impl Fn(u64) -> bool, result: Code) {
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

/// Has channels join the bundle `number`.
fn begin_bundle(
    shared: &Arc<Shared>,
    number: u64,
    target: &str,
) -> Result<(Arrivals, Box<dyn Listener>, BundleName), Fault> {
    let arrivals = Arrivals::default();
    let listener = arrivals.listen();
    let listener = listener.map_err(|e| Fault::from_io(OPEN_TUNNEL, target, &e))?;
    let mut bundles = shared.lock_bundles();
    let count = bundles.len();
    if count >= BUNDLES_MAX {
        let cause = format!("the server has {count} tunnels of several channels already");
        let fault = Fault::new(Code::LimitExceeded, OPEN_TUNNEL, cause).path(target);
        return Err(fault.retry(Retry::AfterMs(1000)));
    }
    if bundles.contains_key(&number) {
        let cause = "another bundle has this number";
        return Err(Fault::new(Code::InvalidArgument, OPEN_TUNNEL, cause));
    }
    bundles.insert(number, (arrivals.clone(), target.to_owned()));
    drop(bundles);
    let shared = Arc::clone(shared);
    Ok((arrivals, listener, BundleName { shared, number }))
}
