//! Sessions with other servers that are used again: a small file takes as long as the opening of a
//! session.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::attempt::lock;
use crate::client::Client;

/// Sessions with one server that are kept while nothing is sent.
const IDLE_MAX: usize = 4;
/// How long they are kept.
const IDLE: Duration = Duration::from_secs(10);

/// A session that is open.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: Client,
    /// Where the server is, which the settings may forbid meanwhile.
    pub(super) address: SocketAddr,
}

/// Sessions that wait for something to send, by their servers.
#[derive(Debug, Default)]
pub(super) struct Links {
    idle: Mutex<HashMap<String, Vec<(Link, Instant)>>>,
}

impl Links {
    /// Takes a session with a server.
    pub(super) fn take(&self, server: &str) -> Option<Link> {
        let mut idle = lock(&self.idle);
        let (link, _) = idle.get_mut(server)?.pop()?;
        Some(link)
    }

    /// Keeps a session for the next use, unless it has ended.
    pub(super) fn put(&self, server: String, link: Link) {
        if link.client.ended().is_some() {
            return;
        }
        let mut idle = lock(&self.idle);
        let own = idle.entry(server).or_default();
        if own.len() < IDLE_MAX {
            own.push((link, Instant::now()));
        }
    }

    /// Ends sessions that have waited for too long.
    pub(super) fn end_idle(&self) {
        let mut ended = Vec::new();
        let mut idle = lock(&self.idle);
        for own in idle.values_mut() {
            ended.extend(own.extract_if(.., |(_, since)| since.elapsed() > IDLE));
        }
        idle.retain(|_, own| !own.is_empty());
        drop(idle);
        // An end may take a while.
        drop(ended);
    }

    /// Ends all sessions that wait.
    pub(super) fn clear(&self) {
        let idle = std::mem::take(&mut *lock(&self.idle));
        drop(idle);
    }
}
