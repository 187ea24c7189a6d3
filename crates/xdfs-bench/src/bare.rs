//! A ruler for the other rows: two processes that only copy a file through one connection.
//!
//! They read and send, receive and write, in pieces that fit a cache, and do nothing else: no
//! protocol, no check value, no journal, no name that appears when all is there. What they cost is
//! what the system charges for its copies. Started by a `CommandLine` of `tool`.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::ExitCode,
    time::Duration,
};

/// The first word of its command lines.
pub(crate) const COMMAND: &str = "bare";
/// What is read and written at once, in bytes.
const PIECE_BYTES: usize = 256 << 10;
/// Longest silence of the peer.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Runs `bare serve PORT`, `bare up PORT SOURCE TARGET` or `bare down PORT SOURCE TARGET`; the path
/// of the other side is one of the server's.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match *words.as_slice() {
        ["serve", port] => serve(port),
        ["up", port, source, target] => up(port, source, target),
        ["down", port, source, target] => down(port, source, target),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{COMMAND} {}: {error}", arguments.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// Serves one client after the other until it is ended.
fn serve(port: &str) -> io::Result<()> {
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let mut order = String::new();
        // The client says nothing more before it is answered, so nothing is read too far.
        BufReader::new(&stream).read_line(&mut order)?;
        match order.trim_end().split_once(' ') {
            Some(("up", target)) => {
                (&stream).write_all(b"\n")?;
                receive(stream, target)?;
            }
            Some(("down", source)) => send(source, &stream)?,
            // Somebody who only looked whether it listens.
            _ => {}
        }
    }
}

fn up(port: &str, source: &str, target: &str) -> io::Result<()> {
    let mut stream = connect(port, "up", target)?;
    stream.read_exact(&mut [0])?;
    send(source, &stream)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    // The end of the peer says that it has written everything.
    stream.read_to_end(&mut Vec::new()).map(drop)
}

fn down(port: &str, source: &str, target: &str) -> io::Result<()> {
    receive(connect(port, "down", source)?, target)
}

fn connect(port: &str, way: &str, path: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.write_all(format!("{way} {path}\n").as_bytes())?;
    Ok(stream)
}

fn send(source: &str, mut stream: &TcpStream) -> io::Result<()> {
    let mut file = File::open(source)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(()),
            n => stream.write_all(&piece[..n])?,
        }
    }
}

fn receive(mut stream: TcpStream, target: &str) -> io::Result<()> {
    let mut file = File::create(target)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut filled = 0;
    loop {
        let n = stream.read(&mut piece[filled..])?;
        filled += n;
        if n == 0 || filled == piece.len() {
            file.write_all(&piece[..filled])?;
            filled = 0;
        }
        if n == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_the_copy_is_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 7).map(|i| (i % 251) as u8).collect();
        std::fs::write(path("source"), &bytes).unwrap();
        let port = crate::server::free_port().unwrap().to_string();
        let own = port.clone();
        std::thread::spawn(move || serve(&own));
        let mut tries = 0;
        while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
            tries += 1;
            assert!(tries < 1000, "it does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        up(&port, &path("source"), &path("up")).unwrap();
        down(&port, &path("source"), &path("down")).unwrap();
        for copy in ["up", "down"] {
            assert!(std::fs::read(path(copy)).unwrap() == bytes, "{copy}");
        }
    }
}
