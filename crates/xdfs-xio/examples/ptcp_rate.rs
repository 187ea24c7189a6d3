//! The rate of stacks against each other: `ptcp_rate local`, or between two machines
//! `ptcp_rate serve ADDRESS STACK` and `ptcp_rate send ADDRESS STACK SECONDS`.
//!
//! `local` moves data over loopback through one plain TCP stream and through bundles by turns, and
//! prints the rates in MB/s.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::{Endpoint, Listener, Registry, Stack, Stream};

const BUFFER: usize = 256 << 10;

fn stack(text: &str) -> Stack {
    let spec = text.parse().expect("the text of a stack");
    Registry::standard().build(&spec).expect("a stack")
}

fn until<T>(poller: &mut Poller, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                poller.wait(&mut Vec::new(), None)?;
            }
            done => return done,
        }
    }
}

/// Reads everything; how much there was.
fn receive(mut listener: Box<dyn Listener>) -> io::Result<(u64, Duration)> {
    let mut poller = Poller::new()?;
    listener.register(&mut poller, Token(1))?;
    let mut stream = until(&mut poller, || listener.accept())?;
    stream.register(&mut poller, Token(2))?;
    let mut buffer = vec![0; BUFFER];
    let (mut total, begin) = (0, Instant::now());
    loop {
        let bufs = &mut [IoSliceMut::new(&mut buffer)];
        match until(&mut poller, || stream.read_vectored(bufs))? {
            0 => return Ok((total, begin.elapsed())),
            n => total += n as u64,
        }
    }
}

/// Writes until `goes_on` says no, and waits for the peer's end.
fn send(stream: Box<dyn Stream>, mut goes_on: impl FnMut(u64) -> bool) -> io::Result<Duration> {
    let mut stream = stream;
    let mut poller = Poller::new()?;
    stream.register(&mut poller, Token(1))?;
    until(&mut poller, || match stream.finish_open()? {
        true => Ok(()),
        false => Err(ErrorKind::WouldBlock.into()),
    })?;
    let buffer = vec![7; BUFFER];
    let (mut sent, begin) = (0, Instant::now());
    while goes_on(sent) {
        let write = || stream.write_vectored(&[IoSlice::new(&buffer)]);
        sent += until(&mut poller, write)? as u64;
    }
    until(&mut poller, || stream.flush())?;
    stream.close()?;
    let mut rest = [0; 16];
    until(&mut poller, || {
        stream.read_vectored(&mut [IoSliceMut::new(&mut rest)])
    })?;
    for name in [
        "ptcp.streams",
        "ptcp.resent",
        "ptcp.broken",
        "ptcp.joined",
        "tcp.congestion",
    ] {
        if let Some(value) = stream.control(name) {
            eprint!("{name}={value} ");
        }
    }
    Ok(begin.elapsed())
}

fn local(text: &str, bytes: u64) -> io::Result<f64> {
    let stack = stack(text);
    let listener = stack.listen(&Endpoint::tcp(([127, 0, 0, 1], 0).into()))?;
    let endpoint = listener.local_endpoint();
    let receiver = std::thread::spawn(move || receive(listener));
    let time = send(stack.open(&endpoint)?, |sent| sent < bytes)?;
    let (total, _) = receiver.join().expect("the receiver")?;
    Ok(total as f64 / time.as_secs_f64() / 1e6)
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["local", ref more @ ..] => {
            let stacks = if more.is_empty() {
                &["tcp", "tcp,ptcp:n=4"][..]
            } else {
                more
            };
            let mut rates = vec![Vec::new(); stacks.len()];
            for _ in 0..7 {
                for (stack, rates) in stacks.iter().zip(&mut rates) {
                    rates.push(local(stack, 2 << 30)?);
                }
            }
            eprintln!();
            for (stack, mut rates) in stacks.iter().zip(rates) {
                rates.sort_by(f64::total_cmp);
                let [least, .., most] = rates[..] else {
                    continue;
                };
                let median = rates[rates.len() / 2];
                println!("{stack}: {median:.0} MB/s ({least:.0} to {most:.0})");
            }
        }
        ["serve", address, text] => {
            let address = address.parse().expect("an address");
            let (total, time) = receive(stack(text).listen(&Endpoint::tcp(address))?)?;
            println!(
                "{total} bytes, {:.1} Mbit/s",
                total as f64 * 8e-6 / time.as_secs_f64()
            );
        }
        ["send", address, text, seconds] => {
            let address = address.parse().expect("an address");
            let time = Duration::from_secs(seconds.parse().expect("seconds"));
            let begin = Instant::now();
            let stream = stack(text).open(&Endpoint::tcp(address))?;
            send(stream, |_| begin.elapsed() < time)?;
        }
        _ => eprintln!("ptcp_rate local | serve ADDRESS STACK | send ADDRESS STACK SECONDS"),
    }
    Ok(())
}
