//! Whether the payload of protected channels is encrypted. The initiator requests it, the acceptor
//! follows as far as its policy allows, and neither accepts a level that was not agreed on.

use xdfs_proto::frame::Level;
use xdfs_proto::{Code, Fault};

use super::{Pipeline, Role};
use crate::kernel::Kernel;

const OPERATION: &str = "send payload in the clear";

impl<K: Kernel> Pipeline<K> {
    /// Learns from the first channel whether the acceptor accepts unencrypted payload.
    pub(super) fn learn_level(&mut self, takes_clear: bool) -> Result<(), Fault> {
        let Role::Initiator(dialer) = &mut self.role else {
            return Ok(());
        };
        dialer.set_takes_clear(takes_clear);
        self.check_level(takes_clear)
    }

    /// Checks the acceptor's answer on a channel against the requested level (initiator). Both may
    /// have changed since the session began.
    pub(super) fn check_level(&self, takes_clear: bool) -> Result<(), Fault> {
        match &self.role {
            Role::Initiator(dialer) if dialer.level() == Level::Clear && !takes_clear => Err(
                clear_refused("the server, or a driver above TLS, takes private payload only"),
            ),
            _ => Ok(()),
        }
    }

    /// Changes the level of all present and future channels (initiator). The session ends if the
    /// acceptor does not allow it: payload is never sent at another level than requested.
    pub(super) fn want_level(&mut self, level: Level) {
        let Role::Initiator(dialer) = &mut self.role else {
            return;
        };
        dialer.set_level(level);
        // Before the answer to HELLO this is unknown; it is checked when that arrives.
        if level == Level::Clear && !self.channel_set.is_empty() && !dialer.takes_clear() {
            self.end(Err(clear_refused(
                "the server, or a driver above TLS, takes private payload only",
            )));
            return;
        }
        let open: Vec<usize> = self.channels.open().map(|(slot, _)| slot).collect();
        for slot in open {
            if let Some(channel) = self.channels.get_mut(slot) {
                channel.set_level(level);
            }
            self.channels.queue(slot);
        }
    }

    /// Offloads a channel's protection to the kernel if its payload is always encrypted. The kernel
    /// can't handle runs of clear bytes, and where both sides accept them the level may change at
    /// any time.
    pub(super) fn offload_private(&mut self, slot: usize) {
        let Some(channel) = self.channels.get_mut(slot) else {
            return;
        };
        let takes_clear = match &self.role {
            Role::Initiator(dialer) => dialer.takes_clear() || channel.takes_clear,
            Role::Acceptor { takes_clear, .. } => *takes_clear,
        };
        if !takes_clear && let Some(protected) = channel.stream.protected() {
            protected.offload();
        }
    }

    /// Handles the peer's announcement of the level of its next blocks. The acceptor follows it.
    pub(super) fn take_level(&mut self, slot: usize, level: Level) -> Result<(), Fault> {
        let follows = matches!(self.role, Role::Acceptor { .. });
        let policy = matches!(self.role, Role::Acceptor { takes_clear, .. } if takes_clear);
        if let Some(channel) = self.channels.get_mut(slot) {
            if level == Level::Clear && !policy && !channel.take_level_answer() {
                return Err(clear_refused("it was not agreed on"));
            }
            tracing::debug!(channel = %channel.index, peer = %channel.peer, ?level,
                "the payload of the peer changes its level");
            channel.clear_in = level == Level::Clear;
            if follows {
                channel.set_level(level);
                self.channels.queue(slot);
            }
        }
        Ok(())
    }

    /// Checks that an unencrypted block was announced, and that no encrypted bytes lie between its
    /// header and its payload.
    pub(super) fn check_clear(&self, slot: usize) -> Result<(), Fault> {
        let Some(channel) = self.channels.get(slot) else {
            return Ok(());
        };
        if !channel.clear_in {
            return Err(clear_refused("a clear block arrived unannounced"));
        }
        if channel.input.len() > xdfs_proto::frame::BLOCK_HEADER_BYTES {
            return Err(Fault::new(
                Code::ProtocolViolation,
                "receive a block",
                "protected bytes arrived between a header and its clear payload",
            ));
        }
        Ok(())
    }
}

fn clear_refused(cause: &str) -> Fault {
    Fault::new(Code::ProtectionRefused, OPERATION, cause)
        .hint("leave out --protect clear, or start the server with --protect clear")
}
