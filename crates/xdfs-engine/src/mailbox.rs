//! The queue of events from a session to its user: unbounded, and readable by a thread, with or
//! without a timeout, or by a task of any asynchronous runtime.
//!
//! It combines a channel of the standard library with the waker of the latest poll. A mailbox has
//! one reader: either a thread that blocks, or a task that polls.

use std::sync::mpsc::{self, RecvError, RecvTimeoutError, SendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The task waiting for the next message.
#[derive(Debug, Default)]
struct Waiting(Mutex<Option<Waker>>);

impl Waiting {
    fn set(&self, waker: &Waker) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waiting {
            Some(known) => known.clone_from(waker),
            None => *waiting = Some(waker.clone()),
        }
    }

    fn wake(&self) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Without the lock, since a runtime may poll the task right here.
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Puts messages into a mailbox.
#[derive(Debug)]
pub struct Sender<T> {
    // `None` only during the drop.
    messages: Option<mpsc::Sender<T>>,
    waiting: Arc<Waiting>,
}

/// Receives messages.
#[derive(Debug)]
pub struct Mailbox<T> {
    messages: mpsc::Receiver<T>,
    waiting: Arc<Waiting>,
}

/// An empty mailbox.
#[must_use]
pub fn mailbox<T>() -> (Sender<T>, Mailbox<T>) {
    let (sender, receiver) = mpsc::channel();
    let waiting = Arc::<Waiting>::default();
    let sender = Sender {
        messages: Some(sender),
        waiting: Arc::clone(&waiting),
    };
    let mailbox = Mailbox {
        messages: receiver,
        waiting,
    };
    (sender, mailbox)
}

impl<T> Sender<T> {
    /// Sends a message, and wakes the reader.
    ///
    /// # Errors
    /// The message, if the mailbox is gone.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        match &self.messages {
            Some(messages) => messages.send(message)?,
            None => return Err(SendError(message)),
        }
        self.waiting.wake();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            messages: self.messages.clone(),
            waiting: Arc::clone(&self.waiting),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Before the wake-up, so that the reader sees the end.
        self.messages = None;
        self.waiting.wake();
    }
}

impl<T> Mailbox<T> {
    /// Waits for the next message.
    ///
    /// # Errors
    /// It is empty, and all senders are gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.messages.recv()
    }

    /// Waits up to `timeout` for the next message.
    ///
    /// # Errors
    /// The timeout expired, or it is empty and all senders are gone.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.messages.recv_timeout(timeout)
    }

    /// The next message; `None` when it is empty and all senders are gone. If there is no message
    /// yet, the task is woken by the next one or by the end.
    #[must_use = "nothing is woken for a message that was there"]
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        // Before the check, so that a message after it wakes the task.
        self.waiting.set(context.waker());
        match self.messages.try_recv() {
            Ok(message) => Poll::Ready(Some(message)),
            Err(mpsc::TryRecvError::Disconnected) => Poll::Ready(None),
            Err(mpsc::TryRecvError::Empty) => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Woken {
        fn times(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn only_the_latest_waker_is_woken_and_once() {
        let (sender, mailbox) = mailbox::<u8>();
        let [first, second] = [(); 2].map(|()| Arc::new(Woken::default()));
        for woken in [&first, &second] {
            let waker = Waker::from(Arc::clone(woken));
            let polled = mailbox.poll_recv(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert_eq!((first.times(), second.times()), (0, 1));
        let waker = Waker::from(Arc::clone(&first));
        let mut context = Context::from_waker(&waker);
        assert_eq!(mailbox.poll_recv(&mut context), Poll::Ready(Some(1)));
        assert_eq!(mailbox.poll_recv(&mut context), Poll::Ready(Some(2)));
    }

    #[test]
    fn the_last_sender_wakes_when_it_goes() {
        let (sender, mailbox) = mailbox::<u8>();
        let other = sender.clone();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        assert!(mailbox.poll_recv(&mut context).is_pending());
        drop(sender);
        assert!(mailbox.poll_recv(&mut context).is_pending());
        let before = woken.times();
        drop(other);
        assert_eq!(woken.times(), before + 1);
        assert_eq!(mailbox.poll_recv(&mut context), Poll::Ready(None));
    }

    /// A message or end that arrives during a poll must wake the reader: a lost wake-up would park
    /// the thread forever.
    #[test]
    fn no_wake_up_is_lost() {
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        const HANG: Duration = Duration::from_secs(20);
        for round in 0..2000_u32 {
            let (sender, mailbox) = mailbox();
            let teller = thread::spawn(move || {
                for _ in 0..round % 50 {
                    std::hint::spin_loop();
                }
                sender.send(round).unwrap();
            });
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let mut context = Context::from_waker(&waker);
            let mut came = Vec::new();
            loop {
                match mailbox.poll_recv(&mut context) {
                    Poll::Ready(Some(message)) => came.push(message),
                    Poll::Ready(None) => break,
                    Poll::Pending => {
                        let parked = Instant::now();
                        thread::park_timeout(HANG);
                        assert!(parked.elapsed() < HANG, "nobody woke it in round {round}");
                    }
                }
            }
            assert_eq!(came, [round]);
            teller.join().unwrap();
        }
    }
}
