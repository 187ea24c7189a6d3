//! Queues against real servers, some of which go away.

use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xdfs::{
    Client, ClientOptions, Code, Fault, FileCopy, LocalPlace, Observer, Queue, QueueEvent,
    QueueOptions, RemotePlace, RetryPolicy, ServerFile, Silent, TransferOptions, TransferRoute,
};
use xdfs_testkit::proxy::FaultProxy;
use xdfs_testkit::wait;

use crate::support::{Folders, PATIENCE, Serving, assert_equal};

fn connect(server: &RemotePlace) -> Result<Arc<Client>, Fault> {
    let options = ClientOptions {
        channels: Some(2),
        strict: true,
        ..ClientOptions::default()
    };
    Client::connect(server, options).map(Arc::new)
}

fn upload(folders: &Folders, at: SocketAddr, name: &str) -> FileCopy {
    FileCopy {
        server: format!("xdfs://{at}").parse().unwrap(),
        route: TransferRoute::Upload {
            from: LocalPlace::Path(folders.here(name)),
            to: format!("/{name}").into_bytes(),
        },
        options: TransferOptions::default(),
    }
}

/// Keeps why tries are made again, and the most bytes that a job had.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<(Vec<Fault>, u64, u64)>>);

impl Observer for Heard {
    fn on_job(&mut self, _: u64, event: QueueEvent<'_>) -> ControlFlow<()> {
        let mut heard = self.0.lock().unwrap();
        match event {
            QueueEvent::Retry { fault, .. } => heard.0.push(fault.clone()),
            QueueEvent::Progress(progress) => {
                heard.1 = heard.1.max(progress.bytes);
                heard.2 = heard.2.max(progress.resumed_bytes);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Heard {
    fn retries(&self) -> Vec<Fault> {
        self.0.lock().unwrap().0.clone()
    }

    fn bytes(&self) -> u64 {
        self.0.lock().unwrap().1
    }

    fn resumed_bytes(&self) -> u64 {
        self.0.lock().unwrap().2
    }
}

#[test]
fn a_session_is_used_for_all_that_comes() {
    let folders = Folders::new(940);
    let server = Serving::start(&folders.root(), |_| {});
    let proxy = FaultProxy::new(server.addr).unwrap();
    let queue = Queue::new(QueueOptions::default(), connect, Silent).unwrap();
    for batch in 0..3 {
        let names = (0..10).map(|number| format!("{batch}-{number}"));
        let names: Vec<String> = names.collect();
        let jobs = names.iter().map(|name| {
            folders.make_here(name, 10_000);
            upload(&folders, proxy.addr(), name)
        });
        for (name, transfer) in names.iter().zip(queue.add(jobs)) {
            assert_eq!(transfer.wait().unwrap().bytes, 10_000);
            assert_equal(&folders.here(name), &folders.there(name));
        }
    }
    assert_eq!(proxy.accepted(), 2, "both channels of one session");
}

/// The server ends in the middle, and another one takes its place: what has arrived isn't sent
/// again.
#[test]
fn a_server_that_is_started_again_is_waited_for() {
    const SIZE: u64 = 12 << 20;
    let folders = Folders::new(941);
    let mut server = Serving::start(&folders.root(), |_| {});
    let proxy = FaultProxy::new(server.addr).unwrap();
    let heard = Heard::default();
    let queue = Queue::new(QueueOptions::default(), connect, heard.clone()).unwrap();
    let names = ["a", "b", "c"];
    let jobs = names.map(|name| {
        folders.make_here(name, SIZE);
        let mut job = upload(&folders, proxy.addr(), name);
        job.options.parameters.rate_bytes_per_s_max = Some(16 << 20);
        job
    });
    let transfers = queue.add(jobs);
    assert!(wait::until(PATIENCE, || heard.bytes() > SIZE / 3));
    server.stop();
    let server = Serving::start(&folders.root(), |_| {});
    proxy.set_target(server.addr);
    let results: Vec<_> = transfers.into_iter().map(|t| t.wait().unwrap()).collect();
    for (name, result) in names.iter().zip(&results) {
        assert_eq!(result.bytes, SIZE);
        assert_equal(&folders.here(name), &folders.there(name));
    }
    // The last attempts resumed, and the results count all of them.
    assert!(heard.resumed_bytes() > 0);
    assert!(
        results.iter().all(|result| result.resumed_bytes == 0),
        "{results:?}"
    );
    let retries = heard.retries();
    assert!(!retries.is_empty());
    assert!(
        retries.iter().all(|fault| fault.ends_session),
        "{retries:?}"
    );
}

#[test]
fn a_server_that_is_not_there_is_told_once_for_all() {
    let folders = Folders::new(942);
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let heard = Heard::default();
    let queue = Queue::new(QueueOptions::default(), connect, heard.clone()).unwrap();
    let names = ["a", "b", "c", "d", "e", "f"];
    let transfers = queue.add(names.map(|name| {
        folders.make_here(name, 1);
        upload(&folders, nobody, name)
    }));
    for transfer in transfers {
        let fault = transfer.wait().unwrap_err();
        assert_eq!(fault.code, Code::ConnectionRefused, "{fault}");
    }
    assert_eq!(heard.retries(), []);
}

#[test]
fn closing_waits_and_stopping_cancels() {
    let folders = Folders::new(943);
    let server = Serving::start(&folders.root(), |_| {});
    let jobs = |prefix: &str, bytes: u64, rate: u64| {
        let names = (0..6).map(|number| format!("{prefix}{number}"));
        let jobs = names.map(|name| {
            folders.make_here(&name, bytes);
            let mut job = upload(&folders, server.addr, &name);
            job.options.parameters.rate_bytes_per_s_max = Some(rate);
            job
        });
        jobs.collect::<Vec<FileCopy>>()
    };
    let queue = Queue::new(QueueOptions::default(), connect, Silent).unwrap();
    // Nobody waits for them by itself.
    drop(queue.add(jobs("closed", 1 << 20, 8 << 20)));
    queue.close();
    for number in 0..6 {
        let name = format!("closed{number}");
        assert_equal(&folders.here(&name), &folders.there(&name));
    }

    let queue = Queue::new(QueueOptions::default(), connect, Silent).unwrap();
    // Too slow to be done before the queue hears of its end.
    let slow = |prefix| jobs(prefix, 4 << 20, 128 << 10);
    let (stopped, late) = (slow("stopped"), slow("late"));
    let transfers = queue.add(stopped);
    queue.stop();
    let late = queue.add(late);
    for transfer in transfers.into_iter().chain(late) {
        assert_eq!(transfer.wait().unwrap_err().code, Code::Cancelled);
    }
    drop(queue);
    assert!(!folders.there("late0").exists());
}

/// What was given out by a queue can be cancelled after it is gone, and tells its end.
#[test]
fn transfers_outlive_their_queue() {
    let folders = Folders::new(944);
    let server = Serving::start(&folders.root(), |_| {});
    folders.make_here("a", 1000);
    let queue = Queue::new(QueueOptions::default(), connect, Silent).unwrap();
    let transfers = queue.add([upload(&folders, server.addr, "a")]);
    drop(queue);
    for transfer in transfers {
        transfer.cancel();
        assert_eq!(transfer.wait().unwrap().bytes, 1000);
    }
}

/// Ends the server once it has begun to copy, and has another one in its place after more tries
/// than one gets that never answered.
struct Restarting {
    root: PathBuf,
    at: SocketAddr,
    server: Option<Serving>,
    has_ended: Arc<AtomicBool>,
}

impl Observer for Restarting {
    fn on_job(&mut self, _: u64, event: QueueEvent<'_>) -> ControlFlow<()> {
        match event {
            QueueEvent::Progress(_) if !self.has_ended.swap(true, Ordering::SeqCst) => {
                self.server = None;
            }
            QueueEvent::Retry { retry: 8, .. } => {
                self.server = Some(Serving::start(&self.root, |builder| {
                    builder.listen = vec![self.at.to_string().parse().unwrap()];
                }));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_copy_within_a_server_waits_for_one_that_restarts() {
    let folders = Folders::new(949);
    let server = Serving::start(&folders.root(), |_| {});
    let place = |name: &str| format!("xdfs://{}/{name}", server.addr).parse::<RemotePlace>();
    let huge = folders.make_there("huge", 64 << 20);
    let job = FileCopy {
        server: place("huge").unwrap(),
        route: TransferRoute::Upload {
            from: LocalPlace::OtherServer(ServerFile::new(place("huge").unwrap(), connect)),
            to: b"/copy".to_vec(),
        },
        options: TransferOptions::default(),
    };
    let options = QueueOptions {
        retry: RetryPolicy {
            pause_first: Duration::from_millis(1),
            pause_max: Duration::from_millis(10),
            ..RetryPolicy::default()
        },
        ..QueueOptions::default()
    };
    let has_ended = Arc::new(AtomicBool::new(false));
    let restarting = Restarting {
        root: folders.root(),
        at: server.addr,
        server: Some(server),
        has_ended: Arc::clone(&has_ended),
    };
    let queue = Queue::new(options, connect, restarting).unwrap();
    let [transfer] = <[_; 1]>::try_from(queue.add([job])).unwrap();
    transfer.wait().unwrap();
    assert!(
        has_ended.load(Ordering::SeqCst),
        "the server never showed that it was reached"
    );
    assert_equal(&huge, &folders.there("copy"));
}
