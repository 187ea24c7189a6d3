//! The parameters that the peers agree on in the opening exchange.

use xdfs_proto::frame::{SessionAccept, SessionRequest, Start};

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    channels_max: u32,
    block_size: u32,
    window: u32,
    start: Start,
    /// Both sides report how they spend their time.
    reports_time: bool,
}

impl Parameters {
    /// The initiator's request.
    pub(super) fn requested(request: &SessionRequest) -> Self {
        Self {
            channels_max: request.channels,
            block_size: request.block_size,
            window: request.window,
            start: request.start,
            reports_time: false,
        }
    }

    /// The acceptor's answer. `reports_time` says whether both sides report their time.
    pub(super) fn accepted(
        request: &SessionRequest,
        accepted: &SessionAccept,
        reports_time: bool,
    ) -> Self {
        Self {
            window: accepted.window,
            ..Self::requested(request).agreed(accepted, reports_time)
        }
    }

    /// The initiator's parameters after the answer, with its own window.
    pub(super) fn agreed(self, accepted: &SessionAccept, reports_time: bool) -> Self {
        Self {
            channels_max: accepted.channels,
            block_size: accepted.block_size,
            reports_time,
            ..self
        }
    }

    /// Maximum number of channels, without those that are leaving.
    pub(super) fn channels_max(&self) -> u32 {
        self.channels_max
    }

    /// Maximum payload of a block in bytes.
    pub(super) fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Socket buffer of a channel in bytes; `None` for the system's default.
    pub(super) fn window(&self) -> Option<u32> {
        (self.window > 0).then_some(self.window)
    }

    /// Whether both sides report how they spend their time.
    pub(super) fn reports_time(&self) -> bool {
        self.reports_time
    }

    /// Whether the first block waits for all channels.
    pub(super) fn is_strict(&self) -> bool {
        self.start == Start::Strict
    }

    /// Whether this number of open channels suffices to start.
    pub(super) fn may_start(&self, open: u32) -> bool {
        !self.is_strict() || open >= self.channels_max
    }
}
