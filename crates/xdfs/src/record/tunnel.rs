//! The records of tunnels: fields that say nothing about an event are left out.

use serde::Serialize;
use xdfs_proto::Fault;

use crate::tunnel::{TunnelNews, TunnelPort};

#[derive(Debug, Default, Serialize)]
pub(super) struct TunnelBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_server: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl From<&TunnelPort> for TunnelBody<'_> {
    fn from(port: &TunnelPort) -> Self {
        Self {
            address: Some(port.address.clone()),
            at_server: Some(port.at_server),
            target: Some(port.target.to_string()),
            ..Self::default()
        }
    }
}

impl From<&Fault> for TunnelBody<'_> {
    fn from(fault: &Fault) -> Self {
        Self {
            code: Some(fault.code.as_str()),
            message: Some(fault.to_string()),
            ..Self::default()
        }
    }
}

impl<'a> From<&'a TunnelNews> for TunnelBody<'a> {
    fn from(news: &'a TunnelNews) -> Self {
        match news {
            TunnelNews::Opened { from, target } => Self {
                from: Some(from),
                target: Some(target.to_string()),
                ..Self::default()
            },
            TunnelNews::Failed {
                from,
                target,
                fault,
            } => Self {
                from: Some(from),
                target: Some(target.to_string()),
                ..fault.into()
            },
            TunnelNews::Lost { listen, fault } => Self {
                address: Some(listen.to_string()),
                at_server: Some(true),
                ..fault.into()
            },
            TunnelNews::Back { address } => Self {
                address: Some(address.clone()),
                at_server: Some(true),
                ..Self::default()
            },
            TunnelNews::Closed {
                from,
                target,
                sent,
                received,
                fault,
            } => Self {
                from: Some(from),
                target: Some(target.to_string()),
                sent: Some(*sent),
                received: Some(*received),
                ..fault.as_ref().map(Self::from).unwrap_or_default()
            },
        }
    }
}
