//! The transfers of commands, and where their data connections may lead.

use std::net::{IpAddr, SocketAddr};

use super::{Listing, Place, Protection, Session, Transfer, What};
use crate::command::{Command, Form, Mode};
use crate::getput::{Request, Route};

impl What {
    /// Whether it can move in a mode.
    pub(super) fn suits(&self, mode: Mode) -> bool {
        let is_file = match self {
            Self::Send { .. } => true,
            Self::Store { place, .. } => *place != Place::Unique,
            _ => false,
        };
        is_file || !matches!(mode, Mode::Exchange(_))
    }
}

impl Session {
    /// The transfer of a command that moves something, with the point of restart if there is one.
    pub(super) fn transfer(&mut self, command: &Command) -> Option<Transfer> {
        let send = |path, part, restart| What::Send {
            path,
            part,
            restart,
        };
        let store = |path, place, restart| What::Store {
            path,
            announced: None,
            place,
            restart,
        };
        let whole = |path, announced, place, restart| What::Store {
            path,
            announced,
            place,
            restart,
        };
        let what = match command {
            Command::Append(path) => {
                self.restart = None;
                store(self.path(path), Place::End, None)
            }
            Command::List(form, path) => {
                self.restart = None;
                let form = match form {
                    Form::Tree if self.has_segments => Form::Catalogue,
                    form => *form,
                };
                let slash = path.iter().rposition(|byte| *byte == b'/');
                let above = slash.map_or(&b""[..], |at| &path[..=at]);
                let is_shown = form == Form::Names;
                What::List(Listing {
                    form,
                    path: self.path(path),
                    prefix: if is_shown { above.to_vec() } else { Vec::new() },
                })
            }
            Command::RetrieveSegment(request, path) => {
                self.restart = None;
                What::SendSegment {
                    request: request.clone(),
                    path: self.path(path),
                }
            }
            Command::StoreSegment(compression, overwrites, path) => {
                self.restart = None;
                What::StoreSegment {
                    compression: *compression,
                    overwrites: *overwrites,
                    path: self.path(path),
                    announced: self.announced.clone()?,
                }
            }
            Command::Get(Request { path, .. }) | Command::Retrieve(path) => {
                send(self.path(path), None, self.restart.take())
            }
            Command::RetrievePart(start, length, path) => {
                let part = Some((*start, *length));
                send(self.path(path), part, self.restart.take())
            }
            Command::Put(Request { path, .. }) | Command::Store(path) => {
                let (announced, restart) = (self.announced.clone(), self.restart.take());
                whole(self.path(path), announced, Place::Whole, restart)
            }
            Command::StoreUnique(base) => {
                self.restart = None;
                // Of a directory, it is a name in it.
                let name: &[u8] = match base.last() {
                    None | Some(b'/') => b"stou",
                    Some(_) => b"",
                };
                let base = self.path(&[base, name].concat());
                whole(base, self.announced.clone(), Place::Unique, None)
            }
            Command::StoreAt(offset, path) => {
                let restart = self.restart.take();
                store(self.path(path), Place::At(*offset), restart)
            }
            _ => return None,
        };
        let asked = match command {
            Command::Get(asked) | Command::Put(asked) => Some(asked),
            _ => None,
        };
        self.tells_port = asked.is_some();
        self.is_announced = matches!(
            what,
            What::Store {
                announced: Some(_),
                ..
            } | What::StoreSegment { .. }
        );
        let protection = self.data_protection();
        let mode = asked.and_then(|asked| asked.mode).unwrap_or(self.mode);
        let is_stored = matches!(what, What::Store { .. }) && mode == Mode::Stream;
        self.expected = self.allocated.take();
        self.needs_end = is_stored && matches!(protection, Protection::Context { seals: true, .. });
        Some(Transfer {
            mode,
            route: asked.map_or(Route::Told, |asked| asked.route),
            parallelism: self.parallelism,
            layout: self.layout,
            socket_buffer: self.socket_buffer,
            protection,
            what,
        })
    }

    /// Why the data connections of a transfer are refused, with the code of the reply.
    pub(super) fn refuses_route(&self, command: &Command) -> Option<(u16, &'static str)> {
        let (Command::Get(asked) | Command::Put(asked)) = command else {
            return None;
        };
        match asked.route {
            Route::Connect(address) => Some((500, self.bounces(&[address])?)),
            Route::Passive if self.config.peer.is_ipv6() => {
                Some((522, "Reply 127 can't tell an IPv6 address: use EPSV first."))
            }
            Route::Passive | Route::Told => None,
        }
    }

    /// Why data connections to these addresses are refused (RFC 2577, section 3).
    pub(super) fn bounces(&self, addresses: &[SocketAddr]) -> Option<&'static str> {
        let own = self.config.peer.to_canonical();
        let is_other = |address: &SocketAddr| address.ip().to_canonical() != own;
        if !self.config.third_party && addresses.iter().any(is_other) {
            return Some("Data connections go to your own address only.");
        }
        // Nor do services that trust this machine or its network get what a client has stored.
        let is_near = |address: &SocketAddr| match address.ip().to_canonical() {
            IpAddr::V4(ip) => {
                (ip.is_loopback() && !own.is_loopback())
                    || ip.is_unspecified()
                    || ip.is_link_local()
                    || ip.is_multicast()
                    || ip.is_broadcast()
            }
            IpAddr::V6(ip) => {
                (ip.is_loopback() && !own.is_loopback())
                    || ip.is_unspecified()
                    || ip.is_unicast_link_local()
                    || ip.is_multicast()
            }
        };
        if addresses.iter().any(|to| is_other(to) && is_near(to)) {
            return Some("Data connections don't go to such an address.");
        }
        let is_service = |address: &SocketAddr| address.port() < 1024;
        let is_service = addresses.iter().any(is_service);
        is_service.then_some("Data connections go to ports from 1024 on only.")
    }
}
