//! Stripes at the control connection: options of sending, addresses of data nodes, and markers.

use std::net::SocketAddr;

use xdfs_proto::RangeSet;

use super::{Action, Mode, Protection, Session};
use crate::address::format_host_port;
use crate::command::SendOptions;
use crate::reply::Reply;

impl Session {
    pub(super) fn set_send_options(&mut self, options: SendOptions) {
        self.parallelism = options.parallelism.unwrap_or(self.parallelism);
        self.layout = options.layout.unwrap_or(self.layout);
        self.say(200, "Options of RETR are set.");
    }

    /// Data nodes have files in MODE E without protection, and nothing else: the keys of a
    /// protection stay here.
    pub(super) fn listen_striped(&self) -> Action {
        let is_plain = self.mode == Mode::Extended && !self.has_segments;
        match is_plain && self.data_protection() == Protection::Clear {
            true => Action::ListenStriped,
            false => Action::Listen,
        }
    }

    /// Bytes of the running transfer that ALLO has told.
    #[must_use]
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Tells where stripes listen.
    pub(super) fn say_striped(&mut self, addresses: &[SocketAddr]) {
        let texts = addresses.iter().map(|own| format_host_port(*own));
        match texts.collect::<Option<Vec<_>>>() {
            Some(texts) => {
                let texts = texts.into_iter().map(String::into_bytes);
                let first = "Entering Striped Passive Mode.";
                self.reply(&Reply::of_lines(229, first, texts, "End"));
            }
            None => self.say(522, "SPAS can't tell an IPv6 address."),
        }
    }

    /// Tells how much of a transfer to this side has come by one of several stripes (its number
    /// from 0, and how many there are), at a time in tenths of a second since 1970, and which
    /// ranges are durable since the last time.
    pub fn progress(
        &mut self,
        (index, count): (usize, usize),
        time_tenths: u64,
        bytes: u64,
        durable: &RangeSet,
    ) {
        let (seconds, tenth) = (time_tenths / 10, time_tenths % 10);
        let between = [
            format!("Timestamp:  {seconds}.{tenth}"),
            format!("Stripe Index: {index}"),
            format!("Stripe Bytes Transferred: {bytes}"),
            format!("Total Stripe Count: {count}"),
        ];
        let between = between.map(String::into_bytes);
        self.reply(&Reply::of_lines(112, "Perf Marker", between, "End."));
        self.markers(durable);
    }
}
