//! Transfers and calls as futures, with an executor that is made by hand.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Instant;

use xdfs::{
    Answer, Call, Client, Code, FileCopy, LocalPlace, Queue, QueueOptions, RemotePlace, Resume,
    Silent, Transfer, TransferOptions, TransferParameters, TransferRoute,
};
use xdfs_testkit::wait;

use crate::support::{Folders, PATIENCE, Serving, assert_equal, client};

/// Counts how often it is woken.
#[derive(Default)]
struct Woken {
    times: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.times.fetch_add(1, Ordering::SeqCst);
        let _held = self.lock.lock().unwrap();
        self.changed.notify_all();
    }
}

impl Woken {
    fn times(&self) -> usize {
        self.times.load(Ordering::SeqCst)
    }

    /// Waits until it was woken more often than that.
    #[track_caller]
    fn after(&self, times: usize) {
        let held = self.lock.lock().unwrap();
        let waits = |_: &mut ()| self.times() <= times;
        let (held, waited) = self
            .changed
            .wait_timeout_while(held, PATIENCE, waits)
            .unwrap();
        drop(held);
        assert!(!waited.timed_out(), "nobody woke the task");
    }
}

fn poll<F: Future + Unpin>(future: &mut F, woken: &Arc<Woken>) -> Poll<F::Output> {
    let waker = Waker::from(Arc::clone(woken));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// Polls until it is ready, and only when it was woken.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    loop {
        let times = woken.times();
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => woken.after(times),
        }
    }
}

fn upload(client: &Client, folders: &Folders, name: &str, options: &TransferOptions) -> Transfer {
    let source = LocalPlace::Path(folders.here(name));
    let target = format!("/{name}");
    client.upload(&source, target.as_bytes(), options).unwrap()
}

fn slowly() -> TransferOptions {
    TransferOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: Some(8 << 20),
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    }
}

#[test]
fn many_transfers_are_awaited_in_one_thread() {
    let folders = Folders::new(920);
    let server = Serving::start(&folders.root(), |_| {});
    let client = Arc::new(client(server.addr, |_| {}));
    // A session takes so many at once, and the queue gives it no more.
    let connect = move |_: &RemotePlace| Ok(Arc::clone(&client));
    let queue = Queue::new(QueueOptions::default(), connect, Silent).unwrap();
    let place: RemotePlace = format!("xdfs://{}", server.addr).parse().unwrap();
    let transfers = queue.add((0..200_u64).map(|number| {
        let name = number.to_string();
        FileCopy {
            server: place.clone(),
            route: TransferRoute::Upload {
                from: LocalPlace::Path(folders.make_here(&name, number * 100)),
                to: format!("/{name}").into_bytes(),
            },
            options: TransferOptions::default(),
        }
    }));
    let tasks = (0..).zip(transfers);
    let mut tasks: VecDeque<_> = tasks
        .map(|(number, transfer)| (number, transfer, Arc::new(Woken::default()), None))
        .collect();
    let mut ended = Vec::new();
    let start = Instant::now();
    while let Some((number, mut transfer, woken, polled)) = tasks.pop_front() {
        assert!(start.elapsed() < PATIENCE, "{} have not ended", tasks.len());
        // A task that nobody woke isn't polled.
        let times = woken.times();
        if polled == Some(times) {
            tasks.push_back((number, transfer, woken, polled));
            thread::yield_now();
            continue;
        }
        match poll(&mut transfer, &woken) {
            Poll::Ready(result) => ended.push((number, result.unwrap().bytes)),
            Poll::Pending => tasks.push_back((number, transfer, woken, Some(times))),
        }
    }
    ended.sort_unstable();
    let expected: Vec<(u64, u64)> = (0..200).map(|number| (number, number * 100)).collect();
    assert_eq!(ended, expected);
}

/// Completion and poll meet at every point: were a wake-up lost, the test would hang and say so.
#[test]
fn no_end_is_missed() {
    let folders = Folders::new(921);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |options| options.channels = Some(1));
    let options = TransferOptions {
        parameters: TransferParameters {
            resume: Resume::Never,
            overwrite: true,
            ..TransferParameters::default()
        },
        length: Some(1),
        ..TransferOptions::default()
    };
    let call = Call::Stat {
        path: b"/".to_vec(),
        follow: true,
    };
    for round in 0..500_u64 {
        let started = client.upload(&LocalPlace::Memory, b"mem:null", &options);
        let mut transfer = started.unwrap();
        let mut pending = client.start_call(call.clone()).unwrap();
        for _ in 0..round % 7 * 100 {
            std::hint::spin_loop();
        }
        // Wakers that are replaced, some of which are woken in vain.
        let first = Arc::new(Woken::default());
        let transferred = match poll(&mut transfer, &first) {
            Poll::Ready(result) => result,
            Poll::Pending => block_on(&mut transfer),
        };
        assert_eq!(transferred.unwrap().bytes, 1);
        let answer = match poll(&mut pending, &first) {
            Poll::Ready(answer) => answer,
            Poll::Pending => block_on(&mut pending),
        };
        assert!(matches!(answer.unwrap(), Answer::Attributes(_)));
    }
}

#[test]
fn only_the_latest_task_is_woken() {
    let folders = Folders::new(922);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    folders.make_here("a", 4 << 20);
    let mut transfer = upload(&client, &folders, "a", &slowly());
    let [first, second] = [(); 2].map(|()| Arc::new(Woken::default()));
    assert!(poll(&mut transfer, &first).is_pending());
    assert!(poll(&mut transfer, &second).is_pending());
    // It may have been woken by progress before it was replaced.
    let before = first.times();
    while poll(&mut transfer, &second).is_pending() {
        let times = second.times();
        if poll(&mut transfer, &second).is_pending() {
            second.after(times);
        }
    }
    assert_eq!(first.times(), before);
    assert!(second.times() > 0);
    // Its end is told again, by polling and otherwise.
    let again = poll(&mut transfer, &first);
    assert!(matches!(again, Poll::Ready(Ok(result)) if result.bytes == 4 << 20));
    assert!(transfer.is_finished());
    assert_eq!(transfer.wait().unwrap().bytes, 4 << 20);
}

#[test]
fn a_future_goes_from_thread_to_thread() {
    let folders = Folders::new(923);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    folders.make_here("a", 4 << 20);
    let mut transfer = upload(&client, &folders, "a", &slowly());
    assert!(poll(&mut transfer, &Arc::new(Woken::default())).is_pending());
    let other = thread::spawn(move || block_on(transfer));
    assert_eq!(other.join().unwrap().unwrap().bytes, 4 << 20);
}

#[test]
fn a_future_that_is_dropped_leaves_its_transfer() {
    let folders = Folders::new(924);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let source = folders.make_here("a", 4 << 20);
    let mut transfer = upload(&client, &folders, "a", &slowly());
    let woken = Arc::new(Woken::default());
    assert!(poll(&mut transfer, &woken).is_pending());
    drop(transfer);
    // Of the task nothing is kept.
    assert!(wait::until(PATIENCE, || Arc::strong_count(&woken) == 1));
    assert!(wait::until(PATIENCE, || folders.there("a").exists()));
    assert_equal(&source, &folders.there("a"));
}

#[test]
fn progress_is_polled() {
    let folders = Folders::new(925);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    folders.make_here("a", 16 << 20);
    let mut transfer = upload(&client, &folders, "a", &slowly());
    let mut bytes = Vec::new();
    while let Some(progress) = block_on(std::future::poll_fn(|context| {
        transfer.poll_progress(context)
    })) {
        bytes.push(progress.bytes);
    }
    assert!(!bytes.is_empty() && bytes.is_sorted(), "{bytes:?}");
    assert_eq!(block_on(transfer).unwrap().bytes, 16 << 20);
}

#[test]
fn a_cancelled_transfer_wakes_its_task() {
    let folders = Folders::new(926);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    folders.make_here("a", 64 << 20);
    let mut transfer = upload(&client, &folders, "a", &slowly());
    let woken = Arc::new(Woken::default());
    assert!(poll(&mut transfer, &woken).is_pending());
    transfer.cancel();
    assert_eq!(block_on(transfer).unwrap_err().code, Code::Cancelled);
}

/// Every task hears it when the session ends, also those of calls.
#[test]
fn the_end_of_the_session_is_awaited() {
    let folders = Folders::new(927);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    // Made before the first one is on its way: it must not end meanwhile.
    let names: Vec<_> = (0..8).map(|number| number.to_string()).collect();
    for name in &names {
        folders.make_here(name, 16 << 20);
    }
    let mut waiting = Vec::new();
    for name in &names {
        waiting.push(upload(&client, &folders, name, &slowly()));
    }
    // They are under way when it ends.
    let first = &mut waiting[0];
    let progress = block_on(std::future::poll_fn(|context| first.poll_progress(context)));
    assert!(progress.is_some());
    let waiting = waiting.into_iter();
    let waiting = waiting.map(|transfer| thread::spawn(move || block_on(transfer)));
    let waiting: Vec<_> = waiting.collect();
    client.stop();
    for transfer in waiting {
        let fault = transfer.join().unwrap().unwrap_err();
        assert!(fault.ends_session, "{fault:?}");
    }
    assert!(wait::until(PATIENCE, || client.ended().is_some()));
}

#[test]
fn a_listing_is_awaited_as_a_whole() {
    let folders = Folders::new(928);
    for number in 0..3000 {
        std::fs::write(folders.there(&format!("name-{number}")), "").unwrap();
    }
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    let call = Call::List {
        path: b"/".to_vec(),
        cursor: Vec::new(),
        entries_max: u32::MAX,
    };
    let waited = client.call(call.clone()).unwrap();
    let mut pending = client.start_call(call).unwrap();
    let awaited = block_on(&mut pending).unwrap();
    assert!(matches!(&awaited, Answer::Entries { entries, .. } if entries.len() == 3000));
    assert_eq!(awaited, waited);
    // An answer is told once.
    assert_eq!(block_on(pending).unwrap_err().code, Code::Internal);
    let missing = Call::Stat {
        path: b"/none".to_vec(),
        follow: true,
    };
    let fault = block_on(client.start_call(missing).unwrap()).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
}

/// A transfer that was refused since its target exists goes on as a comparison, which is awaited
/// likewise.
#[test]
fn a_comparison_is_awaited() {
    let folders = Folders::new(929);
    let server = Serving::start(&folders.root(), |_| {});
    let client = client(server.addr, |_| {});
    folders.make_here("a", 3 << 20);
    let options = TransferOptions::default();
    block_on(upload(&client, &folders, "a", &options)).unwrap();
    let again = block_on(upload(&client, &folders, "a", &options)).unwrap();
    assert_eq!(again.resumed_bytes, 3 << 20);
    folders.make_here("b", 1);
    std::fs::write(folders.there("b"), "other").unwrap();
    let refused = block_on(upload(&client, &folders, "b", &options)).unwrap_err();
    assert_eq!(refused.code, Code::AlreadyExists);
}
