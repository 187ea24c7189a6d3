//! The metrics of a server.

use std::sync::Arc;

use xdfs_access::DoorControl;
use xdfs_engine::AcceptorControl;
use xdfs_store::tally::Tally;

use super::{Family, text};
use crate::relay::Relay;

/// Where the figures of a server are.
#[derive(Debug)]
pub(crate) struct ServerFigures {
    pub(crate) acceptor: AcceptorControl,
    /// The other doors, by their names.
    pub(crate) further: Vec<(&'static str, Arc<dyn DoorControl>)>,
    pub(crate) relay: Option<Arc<Relay>>,
}

impl ServerFigures {
    /// The text of all metrics, as they are now.
    pub(crate) fn text(&self) -> String {
        let mut families = self.families();
        families.extend(self.relay.iter().flat_map(|relay| relay.families()));
        families.extend(of_process());
        text(families)
    }

    fn families(&self) -> Vec<Family> {
        let engine = self.acceptor.tally();
        let further = self.further.iter();
        let further = further.filter_map(|(name, door)| Some((*name, door.tally()?)));
        let further: Vec<_> = further.collect();
        let mut doors: Vec<(&str, &Tally)> = vec![("xdfs", &engine.door)];
        doors.extend(further.iter().map(|(name, tally)| (*name, &**tally)));
        let of_doors = |family: Family, figure: &dyn Fn(&Tally) -> u64| {
            doors.iter().fold(family, |family, (door, tally)| {
                family.with(&[("door", door)], figure(tally))
            })
        };
        let by_direction =
            |family: Family, into: &dyn Fn(&Tally) -> u64, out: &dyn Fn(&Tally) -> u64| {
                doors.iter().fold(family, |family, (door, tally)| {
                    family
                        .with(&[("door", door), ("direction", "in")], into(tally))
                        .with(&[("door", door), ("direction", "out")], out(tally))
                })
            };
        let (memory, memory_max) = engine.memory_bytes();
        let failures = doors.iter().flat_map(|(door, tally)| {
            let all = tally.failures.iter();
            all.map(move |(what, code, count)| (*door, what, code, count))
        });
        vec![
            of_doors(
                Family::gauge("xdfs_server_sessions", "Sessions of clients"),
                &|tally| tally.sessions.get(),
            ),
            Family::gauge(
                "xdfs_server_sessions_max",
                "The most sessions that each door takes",
            )
            .with(&[], engine.sessions_max as u64),
            of_doors(
                Family::counter("xdfs_server_sessions_begun", "Sessions that have begun"),
                &|tally| tally.sessions_begun.get(),
            ),
            Family::gauge(
                "xdfs_server_session_threads",
                "Sessions of xDFS whose threads have not ended",
            )
            .with(&[], engine.session_threads() as u64),
            of_doors(
                Family::gauge(
                    "xdfs_server_strangers",
                    "Connections of clients that have not logged in",
                ),
                &|tally| tally.strangers.get(),
            ),
            of_doors(
                Family::gauge(
                    "xdfs_server_channels",
                    "Open channels of xDFS and data connections of GridFTP",
                ),
                &|tally| tally.channels.get(),
            ),
            of_doors(
                Family::counter(
                    "xdfs_server_channels_opened",
                    "Channels and data connections that were opened",
                ),
                &|tally| tally.channels_opened.get(),
            ),
            Family::counter(
                "xdfs_server_channels_broken",
                "Channels that broke while their sessions lived",
            )
            .with(&[], engine.channels_broken.get()),
            Family::gauge("xdfs_server_tunnels", "Tunnels").with(&[], engine.tunnels.get()),
            by_direction(
                Family::counter(
                    "xdfs_server_payload_bytes",
                    "Content of files moved by transfers, without what goes around it",
                ),
                &|tally| tally.received_bytes.get(),
                &|tally| tally.sent_bytes.get(),
            ),
            Family::counter(
                "xdfs_server_repeated_bytes",
                "Content that was sent or received again, since a channel broke or a block was \
                 damaged",
            )
            .with(&[], engine.repeated_bytes.get()),
            by_direction(
                Family::gauge("xdfs_server_transfers_running", "Transfers that run"),
                &|tally| tally.receiving.get(),
                &|tally| tally.sending.get(),
            ),
            by_direction(
                Family::counter(
                    "xdfs_server_transfers",
                    "Transfers that have succeeded; a pack of small files is one",
                ),
                &|tally| tally.received.get(),
                &|tally| tally.sent.get(),
            ),
            Family::counter(
                "xdfs_server_transfers_resumed",
                "Transfers to the server that went on from what an earlier one had stored",
            )
            .with(&[], engine.resumed.get()),
            engine.verdicts().fold(
                Family::counter(
                    "xdfs_server_transfers_limited",
                    "Transfers that have succeeded, by what limited their rate",
                ),
                |family, (by, count)| family.with(&[("limited_by", by.as_str())], count),
            ),
            engine.activities().fold(
                Family::counter(
                    "xdfs_server_session_seconds",
                    "Time of the threads of sessions, by what they did or waited for",
                ),
                |family, (activity, spent)| {
                    family.with(&[("activity", activity.as_str())], spent.as_secs_f64())
                },
            ),
            Family::counter(
                "xdfs_server_calls",
                "Calls about paths and open files that have succeeded",
            )
            .with(&[], engine.calls.get()),
            failures.fold(
                Family::counter(
                    "xdfs_server_failures",
                    "Failures, by what failed and the code of the fault",
                ),
                |family, (door, what, code, count)| {
                    let what = ("what", what.as_str());
                    family.with(&[("door", door), what, ("code", code.as_str())], count)
                },
            ),
            Family::gauge(
                "xdfs_server_memory_bytes",
                "Memory for payload that sessions hold",
            )
            .with(&[], memory as u64),
            Family::gauge(
                "xdfs_server_memory_max_bytes",
                "The most memory for payload that sessions may hold",
            )
            .with(&[], memory_max as u64),
        ]
    }
}

/// The metrics of this process, by the names that other programs have for them too.
pub fn of_process() -> Vec<Family> {
    let mut families = vec![
        Family::gauge("xdfs_build_info", "The version of the program")
            .with(&[("version", env!("CARGO_PKG_VERSION"))], 1),
    ];
    if let Some(usage) = xdfs_sys::process::usage() {
        families.extend([
            Family::counter(
                "process_cpu_seconds",
                "Processor time of all threads of the process",
            )
            .with(&[], usage.processor.as_secs_f64()),
            Family::gauge(
                "process_resident_memory_bytes",
                "Memory of the process, with the payload that sessions hold",
            )
            .with(&[], usage.resident_bytes),
            Family::gauge("process_threads", "Threads of the process").with(&[], usage.threads),
            Family::gauge("process_open_fds", "Open descriptors of the process")
                .with(&[], usage.descriptors),
        ]);
    }
    if let Some(most) = xdfs_sys::limit::descriptor_limit() {
        let family = Family::gauge(
            "process_max_fds",
            "The most descriptors that the process may open",
        );
        families.push(family.with(&[], most));
    }
    if let Some(load) = xdfs_sys::process::load() {
        let family = Family::gauge(
            "xdfs_machine_load",
            "Load of the machine: threads that run or want to, in the last minute",
        );
        families.push(family.with(&[], load));
    }
    families
}
