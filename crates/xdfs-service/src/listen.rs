//! The connections of the service: their number is bounded, and so is the time in which a client
//! has to send a request. Those of other machines have TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use xdfs::security::HttpsTls;

use crate::channel::Channel;
use crate::live::is_set;
use crate::strangers::Strangers;

/// Most connections at the same time. Others wait in the listener.
const CONNECTIONS_MAX: usize = 4096;
/// Places for connections with TLS that haven't logged in: a quarter of all.
const STRANGERS_MAX: usize = 1024;
/// Longest time of a handshake of TLS: many round trips of a long path.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of looks at warnings that are due.
const TICK: Duration = Duration::from_secs(10);
/// Longest time until the head of a request is complete, from the beginning of the connection or
/// the end of the request before.
const HEAD_PATIENCE: Duration = Duration::from_secs(60);
/// Longest time until the request under way is answered when the service ends.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Pause after a connection couldn't be taken, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// TLS of a listener, and those that haven't logged in there.
#[derive(Debug)]
pub(crate) struct Tls {
    config: HttpsTls,
    strangers: Arc<Strangers>,
    /// The name of the listener in warnings.
    name: String,
}

impl Tls {
    pub(crate) fn new(config: HttpsTls, address: SocketAddr) -> Self {
        Self {
            config,
            strangers: Arc::new(Strangers::new(STRANGERS_MAX)),
            name: format!("the service at {address}"),
        }
    }
}

/// Serves until it is closing, and then until requests under way are answered or are too slow.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    mut closing: watch::Receiver<bool>,
) -> io::Result<()> {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let (tls, mut tick) = (tls.map(Arc::new), interval(TICK));
    loop {
        let accepted = async {
            let permit = Arc::clone(&free).acquire_owned().await;
            (listener.accept().await, permit)
        };
        tokio::select! {
            (accepted, permit) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let (router, closing) = (router.clone(), closing.clone());
                    let tls = tls.clone();
                    connections.spawn(async move {
                        // Events are small, and shown at once.
                        let _ = stream.set_nodelay(true);
                        match &tls {
                            None => {
                                let channel = Channel::default();
                                connection(stream, peer, channel, router, closing).await;
                            }
                            Some(tls) => protected(stream, peer, tls, router, closing).await,
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "can't take a connection");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = tick.tick() => {
                if let Some(tls) = &tls {
                    tls.strangers.tick();
                }
            }
            () = is_set(&mut closing) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Serves a connection with TLS, unless it has to give way.
async fn protected(
    stream: TcpStream,
    peer: SocketAddr,
    tls: &Tls,
    router: Router,
    mut closing: watch::Receiver<bool>,
) {
    let stranger = Arc::new(tls.strangers.enter(peer, &tls.name));
    let served = async {
        let handshake = TlsAcceptor::from(tls.config.current()).accept(stream);
        let shaken = tokio::select! {
            shaken = timeout(HANDSHAKE_PATIENCE, handshake) => shaken,
            () = is_set(&mut closing) => return,
        };
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%peer, %error, "a handshake of TLS has failed");
                return;
            }
            Err(_) => return,
        };
        stranger.speaks();
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates().unwrap_or_default();
        let certificates = certificates.iter().map(|one| one.to_vec()).collect();
        let channel = Channel::protected(Arc::clone(&stranger), certificates);
        connection(stream, peer, channel, router, closing).await;
    };
    tokio::select! {
        () = served => {}
        () = stranger.gives_way() => {}
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    channel: Channel,
    router: Router,
    mut closing: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(channel.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = is_set(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            match timeout(END_PATIENCE, connection).await {
                Ok(ended) => ended,
                // Its client is too slow.
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection has broken");
    }
}
