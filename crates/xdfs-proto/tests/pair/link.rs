//! One simulated channel: two queues in order, which can be cut with everything on them.

use std::collections::VecDeque;

use xdfs_proto::frame::{BLOCK_HEADER_BYTES, BlockHeader};
use xdfs_proto::{ChannelIndex, Frame};

/// What travels to the receiver.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Frame(Frame),
    Block(BlockHeader, Vec<u8>),
    /// The header of a block of which bits were changed on the way. What follows can't be read.
    Damaged([u8; BLOCK_HEADER_BYTES]),
}

impl Packet {
    /// What it is, for the printed steps.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Frame(frame) => format!("{frame:?}"),
            Self::Damaged(_) => "a damaged header".into(),
            Self::Block(header, _) => format!("BLOCK of {} at {}", header.file, header.range()),
        }
    }
}

/// A block of which the header was read, and perhaps half of the payload.
#[derive(Clone, Debug)]
pub(crate) struct Arriving {
    pub(crate) header: BlockHeader,
    pub(crate) payload: Vec<u8>,
    pub(crate) taken: bool,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) index: ChannelIndex,
    pub(crate) to_receiver: VecDeque<Packet>,
    pub(crate) to_sender: VecDeque<Frame>,
    pub(crate) arriving: Option<Arriving>,
    /// What is sent on it from now on is lost.
    pub(crate) cut: bool,
    /// Whether the sides use it still: each notices a cut on its own.
    pub(crate) sender_up: bool,
    pub(crate) receiver_up: bool,
}

impl Link {
    pub(crate) fn new(index: u32) -> Self {
        Self {
            index: ChannelIndex(index),
            to_receiver: VecDeque::new(),
            to_sender: VecDeque::new(),
            arriving: None,
            cut: false,
            sender_up: true,
            receiver_up: true,
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.to_receiver.is_empty() && self.to_sender.is_empty() && self.arriving.is_none()
    }
}
