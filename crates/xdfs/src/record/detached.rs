//! The records of copies that servers make by themselves, and of files at a relay.

use serde::Serialize;
use xdfs_proto::relay::ParcelStatus;
use xdfs_proto::third_party::CopyStatus;

use super::digest::Digest;
use super::session::ErrorBody;

#[derive(Debug, Serialize)]
pub(super) struct DetachedBody<'a> {
    pub(super) id: &'a str,
    pub(super) server: &'a str,
    pub(super) source: &'a str,
    pub(super) target: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct DetachedStatusBody<'a> {
    server: &'a str,
    id: &'a str,
    state: &'static str,
    bytes: u64,
    bytes_total: Option<u64>,
    resumed_bytes: u64,
    channels: u16,
    seconds: f64,
    digest: Digest,
    error: Option<ErrorBody<'a>>,
}

impl<'a> DetachedStatusBody<'a> {
    pub(super) fn new(server: &'a str, id: &'a str, status: &'a CopyStatus) -> Self {
        Self {
            server,
            id,
            state: status.state.as_str(),
            bytes: status.bytes,
            bytes_total: status.bytes_total,
            resumed_bytes: status.resumed_bytes,
            channels: status.channels,
            seconds: status.elapsed_ms as f64 / 1e3,
            digest: (&status.digest).into(),
            error: status
                .fault
                .as_ref()
                .map(|fault| ErrorBody::new(None, None, fault)),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ParcelStatusBody<'a> {
    server: &'a str,
    id: &'a str,
    user: Option<&'a str>,
    state: &'static str,
    target: &'a str,
    holder: Option<&'a str>,
    bytes: u64,
    arrived: u64,
    delivered: u64,
    attempts: u32,
    seconds: u64,
    next_seconds: Option<f64>,
    digest: Digest,
    error: Option<ErrorBody<'a>>,
}

impl<'a> ParcelStatusBody<'a> {
    pub(super) fn new(
        server: &'a str,
        (id, user): (&'a str, Option<&'a str>),
        status: &'a ParcelStatus,
    ) -> Self {
        Self {
            server,
            id,
            user,
            state: status.state.as_str(),
            target: &status.target,
            holder: status.holder.as_deref(),
            bytes: status.bytes,
            arrived: status.arrived,
            delivered: status.delivered,
            attempts: status.attempts,
            seconds: status.age_s,
            next_seconds: status.next_ms.map(|next| next as f64 / 1e3),
            digest: (&status.digest).into(),
            error: status
                .fault
                .as_ref()
                .map(|fault| ErrorBody::new(None, None, fault)),
        }
    }
}
