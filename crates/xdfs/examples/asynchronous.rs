//! Awaits transfers and calls: `cargo run --example asynchronous -- xdfs://HOST/DIRECTORY FILE...`.
//!
//! The futures of the library work with any runtime; this program has its own, of twenty lines.

use std::error::Error;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use xdfs::{
    Answer, Call, Client, ClientOptions, Fault, FileCopy, LocalPlace, Queue, QueueOptions,
    RemotePlace, Silent, TransferOptions, TransferRoute,
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, files @ ..] = words.as_slice() else {
        return Err("usage: asynchronous URL FILE...".into());
    };
    let files: Vec<&Path> = files.iter().map(Path::new).collect();
    let sizes = block_on(upload_all(&url.parse()?, &files))?;
    println!("bytes on the server: {sizes:?}");
    Ok(())
}

/// Uploads files into the directory of `server`, and returns their sizes there, in the order of the
/// files.
pub(crate) async fn upload_all(server: &RemotePlace, files: &[&Path]) -> Result<Vec<u64>, Fault> {
    let client = Arc::new(Client::connect(server, ClientOptions::default())?);
    let shared = Arc::clone(&client);
    // The queue runs several transfers at once, and retries transient failures.
    let queue = Queue::new(
        QueueOptions::default(),
        move |_: &RemotePlace| Ok(Arc::clone(&shared)),
        Silent,
    )?;
    let transfers = queue.add(files.iter().map(|file| FileCopy {
        server: server.clone(),
        route: TransferRoute::Upload {
            from: LocalPlace::Path(file.to_path_buf()),
            to: server.path.clone(),
        },
        options: TransferOptions::default(),
    }));
    let mut sizes = Vec::new();
    for transfer in transfers {
        let path = transfer.await?.target;
        let call = Call::Stat { path, follow: true };
        if let Answer::Attributes(attributes) = client.start_call(call)?.await? {
            sizes.push(attributes.size);
        }
    }
    Ok(sizes)
}

/// Polls a future in this thread until it is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
