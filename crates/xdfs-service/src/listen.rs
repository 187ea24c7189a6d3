//! The connections of the service: their number is bounded, and so is the time in which a client
//! has to send a request.

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
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::live::is_set;

/// Most connections at the same time. Others wait in the listener.
const CONNECTIONS_MAX: usize = 4096;
/// Longest time until the head of a request is complete, from the beginning of the connection or
/// the end of the request before.
const HEAD_PATIENCE: Duration = Duration::from_secs(60);
/// Longest time until the request under way is answered when the service ends.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// Most bytes of a head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Pause after a connection couldn't be taken, such as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is closing, and then until requests under way are answered or are too slow.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    mut closing: watch::Receiver<bool>,
) -> io::Result<()> {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let permit = Arc::clone(&free).acquire_owned().await;
            (listener.accept().await, permit)
        };
        tokio::select! {
            (accepted, permit) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let (router, closing) = (router.clone(), closing.clone());
                    connections.spawn(async move {
                        connection(stream, peer, router, closing).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "can't take a connection");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = is_set(&mut closing) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    mut closing: watch::Receiver<bool>,
) {
    // Events are small, and shown at once.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
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
