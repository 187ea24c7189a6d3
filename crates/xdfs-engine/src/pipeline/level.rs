//! How the payload of protected channels travels, and who decides that: the initiator asks, the
//! acceptor follows where its policy lets it, and neither takes what it didn't agree to.

use xdfs_proto::frame::Level;
use xdfs_proto::{Code, Fault};

use super::{Pipeline, Role};
use crate::kernel::Kernel;

const OPERATION: &str = "send payload in the clear";

impl<K: Kernel> Pipeline<K> {
    /// Learns from the first channel whether the acceptor takes payload in the clear.
    pub(super) fn learn_level(&mut self, takes_clear: bool) -> Result<(), Fault> {
        let Role::Initiator(dialer) = &mut self.role else {
            return Ok(());
        };
        dialer.set_takes_clear(takes_clear);
        self.check_level(takes_clear)
    }

    /// Whether a channel can be taken that its acceptor has answered so (initiator). What the user
    /// wants may have changed since the session began, and what the acceptor takes too.
    pub(super) fn check_level(&self, takes_clear: bool) -> Result<(), Fault> {
        match &self.role {
            Role::Initiator(dialer) if dialer.level() == Level::Clear && !takes_clear => {
                Err(clear_refused("the server takes private payload alone"))
            }
            _ => Ok(()),
        }
    }

    /// Changes the level of all channels, those to come included (initiator). Nothing goes on in
    /// another way than was asked for: the session ends where that can't be.
    pub(super) fn want_level(&mut self, level: Level) {
        let Role::Initiator(dialer) = &mut self.role else {
            return;
        };
        dialer.set_level(level);
        // Before the answer to HELLO it isn't known, and looked at when it comes.
        if level == Level::Clear && !self.channel_set.is_empty() && !dialer.takes_clear() {
            self.end(Err(clear_refused("the server takes private payload alone")));
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

    /// Lets the kernel protect a channel on which nothing can become clear. It knows no clear runs,
    /// and a level may change at any time where both sides take clear payload.
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

    /// The peer says how its blocks travel from here on. The acceptor follows.
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

    /// A block comes in the clear: whether that was announced, and nothing stands between its
    /// header and its payload.
    pub(super) fn check_clear(&self, slot: usize) -> Result<(), Fault> {
        let Some(channel) = self.channels.get(slot) else {
            return Ok(());
        };
        if !channel.clear_in {
            return Err(clear_refused("a block came so that should be private"));
        }
        if channel.input.len() > xdfs_proto::frame::BLOCK_HEADER_BYTES {
            return Err(Fault::new(
                Code::ProtocolViolation,
                "receive a block",
                "protected bytes came between a header and its clear payload",
            ));
        }
        Ok(())
    }
}

fn clear_refused(cause: &str) -> Fault {
    Fault::new(Code::ProtectionRefused, OPERATION, cause)
        .hint("leave out --protect clear, or have the server take it by --protect clear")
}
