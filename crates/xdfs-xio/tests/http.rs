//! The transform `http`, against servers that say what a test needs, in order or not.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xdfs_xio::{Handle, Registry, Stack, Wait};

#[path = "support/tls.rs"]
mod configured;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server of one connection: it reads a request's head, and a body up to `body_end` if there is
/// one, and answers with `answer`. It returns what it has read.
fn serve(body_end: &'static [u8], answer: Vec<u8>) -> (String, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a/b?c=d", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = Vec::new();
        let mut room = [0; 4096];
        let is_whole =
            |got: &[u8]| got.windows(4).any(|w| w == b"\r\n\r\n") && got.ends_with(body_end);
        while !is_whole(&got) {
            match stream.read(&mut room).unwrap() {
                0 => break,
                n => got.extend_from_slice(&room[..n]),
            }
        }
        // A client that has seen enough may be gone.
        let _ = stream.write_all(&answer);
        got
    });
    (url, server)
}

fn connect(text: &str, url: &str) -> io::Result<Handle> {
    let handle = Stack::parse(text)
        .unwrap()
        .connect_with(url, &Wait::within(PATIENCE))?;
    Ok(handle.with(Wait::within(PATIENCE)))
}

fn get(text: &str, answer: impl Into<Vec<u8>>) -> io::Result<Vec<u8>> {
    let (url, server) = serve(b"", answer.into());
    let result = connect(text, &url).and_then(|handle| {
        let mut all = Vec::new();
        (&handle).read_to_end(&mut all)?;
        // The end stays the end.
        assert_eq!(handle.read(&mut [0])?, None);
        Ok(all)
    });
    server.join().unwrap();
    result
}

fn refused(text: &str, answer: impl Into<Vec<u8>>) -> (ErrorKind, String) {
    let error = get(text, answer).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn bodies_end_by_length_by_chunks_or_with_the_connection() {
    let long: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    let mut sized =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", long.len()).into_bytes();
    sized.extend(&long);
    sized.extend(b"HTTP/1.1 200 OK of another response");
    assert!(get("tcp,http", sized).unwrap() == long);
    let mut chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n".to_vec();
    for chunk in long.chunks(777) {
        write!(chunked, "{:X};name=value\r\n", chunk.len()).unwrap();
        chunked.extend(chunk);
        chunked.extend(b"\r\n");
    }
    chunked.extend(b"0\r\nTrailer: x\r\n\r\n");
    assert!(get("tcp,http", chunked).unwrap() == long);
    let mut open = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
    open.extend(&long);
    assert!(get("tcp,http", open).unwrap() == long);
    let interim =
        "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(get("tcp,http", interim).unwrap(), b"x");
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(get("tcp,http", empty).unwrap(), b"");
}

#[test]
fn the_request_names_the_resource_and_the_range() {
    let answer = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 5-7/100\r\n\
                  Content-Length: 3\r\n\r\nabc";
    let (url, server) = serve(b"", answer.into());
    let handle = connect("tcp,http:offset=5:length=3", &url).unwrap();
    let mut all = String::new();
    (&handle).read_to_string(&mut all).unwrap();
    assert_eq!(all, "abc");
    let error = handle.write(b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let request = String::from_utf8(server.join().unwrap()).unwrap();
    let host = url.split('/').nth(2).unwrap();
    let wanted = format!(
        "GET /a/b?c=d HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: identity\r\n\
         Range: bytes=5-7\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(request, wanted);
}

#[test]
fn a_part_that_was_not_asked_for_is_refused() {
    let all = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    let (kind, text) = refused("tcp,http:offset=1", all);
    assert_eq!(kind, ErrorKind::Unsupported, "{text}");
    for range in ["", "Content-Range: bytes 0-2/3\r\n", "Content-Range: x\r\n"] {
        let other = format!("HTTP/1.1 206 OK\r\n{range}Content-Length: 3\r\n\r\nabc");
        let (kind, text) = refused("tcp,http:offset=1", other);
        assert_eq!(kind, ErrorKind::InvalidData, "{text}");
    }
    let part = "HTTP/1.1 206 OK\r\nContent-Range: bytes 0-2/9\r\nContent-Length: 3\r\n\r\nabc";
    refused("tcp,http", part);
}

#[test]
fn another_status_fails_the_opening_with_its_reason() {
    for (line, kind, wanted) in [
        ("404 Not\x1b[1m Found", ErrorKind::NotFound, "answered: 404"),
        (
            "403 Forbidden",
            ErrorKind::PermissionDenied,
            "403 Forbidden",
        ),
        ("302 Found", ErrorKind::Other, "302 Found"),
        ("500 Oh No", ErrorKind::Other, "500 Oh No"),
    ] {
        let answer = format!("HTTP/1.1 {line}\r\nContent-Length: 3\r\n\r\nabc");
        let (url, server) = serve(b"", answer.into_bytes());
        let error = connect("tcp,http", &url).unwrap_err();
        server.join().unwrap();
        let text = error.to_string();
        // What moves a terminal's cursor is either refused or left out.
        assert!(!text.contains('\x1b'), "{text:?}");
        if !line.contains('\x1b') {
            assert_eq!(error.kind(), kind, "{text}");
            assert!(text.contains(wanted), "{text}");
        }
    }
}

#[test]
fn a_premature_end_is_an_error() {
    for answer in [
        "",
        "HTTP/1.1 200 O",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
    ] {
        let (kind, text) = refused("tcp,http", answer);
        assert_eq!(kind, ErrorKind::UnexpectedEof, "{answer:?}: {text}");
    }
}

#[test]
fn hostile_servers_are_refused() {
    let ok = "HTTP/1.1 200 OK\r\n";
    let chunked = format!("{ok}Transfer-Encoding: chunked\r\n\r\n");
    let many: String = (0..200).map(|i| format!("A{i}: b\r\n")).collect();
    for answer in [
        "SSH-2.0-OpenSSH\r\n\r\n".to_owned(),
        "HTTP/1.1 101 Switching\r\n\r\n".to_owned(),
        format!("{ok}Content-Length: 1\r\nContent-Length: 1\r\n\r\na"),
        format!("{ok}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{ok}Content-Length: +1\r\n\r\na"),
        format!("{ok}Content-Length: 99999999999999999999\r\n\r\na"),
        format!("{ok}Content-Length:\r\n\r\na"),
        format!("{ok}Transfer-Encoding: gzip, chunked\r\n\r\n"),
        format!("{ok}{many}\r\n"),
        format!("{ok}A: {}\r\n\r\n", "b".repeat(100_000)),
        format!("{ok}A: {}", "b".repeat(1_000_000)),
        format!("{chunked}x\r\n"),
        format!("{chunked}-1\r\n"),
        format!("{chunked}\r\n"),
        format!("{chunked}10000000000000000\r\n"),
        format!("{chunked}1\r\nab\r\n"),
        format!("{chunked}1;{}", "b".repeat(1_000_000)),
        format!("{chunked}0\r\n{}", "a: b\r\n".repeat(100_000)),
        "HTTP/1.1 103 Early\r\n\r\n".repeat(100_000),
    ] {
        let start: String = answer.chars().take(80).collect();
        let (kind, text) = refused("tcp,http", answer);
        let kinds = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
        assert!(kinds.contains(&kind), "{start:?}: {text}");
    }
}

#[test]
fn bodies_are_sent_in_chunks_or_with_their_size() {
    let answer = "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nfine!";
    let (url, server) = serve(b"0\r\n\r\n", answer.into());
    let handle = connect("tcp,http:method=put", &url).unwrap();
    handle.write_all(b"hello").unwrap();
    handle.write_all(&[b'x'; 20]).unwrap();
    handle.end().unwrap();
    assert_eq!(handle.read(&mut [0; 9]).unwrap(), None);
    let request = String::from_utf8(server.join().unwrap()).unwrap();
    assert!(
        request.starts_with("PUT /a/b?c=d HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.contains("\r\nTransfer-Encoding: chunked\r\n"),
        "{request}"
    );
    let body = request.split_once("\r\n\r\n").unwrap().1;
    let wanted = format!("5\r\nhello\r\n14\r\n{}\r\n0\r\n\r\n", "x".repeat(20));
    assert_eq!(body, wanted);

    let answer = "HTTP/1.1 204 No Content\r\n\r\n";
    let (url, server) = serve(b"hello", answer.into());
    let handle = connect("tcp,http:method=put:size=5", &url).unwrap();
    let full = handle.write_all(b"hello, you").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::FileTooLarge);
    handle.end().unwrap();
    assert_eq!(handle.read(&mut [0; 9]).unwrap(), None);
    let request = String::from_utf8(server.join().unwrap()).unwrap();
    assert!(request.contains("\r\nContent-Length: 5\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nhello"), "{request}");
}

#[test]
fn a_body_that_was_not_stored_is_an_error() {
    for answer in ["HTTP/1.1 507 Full\r\n\r\n", ""] {
        let (url, server) = serve(b"0\r\n\r\n", answer.into());
        let handle = connect("tcp,http:method=put", &url).unwrap();
        handle.write_all(b"hello").unwrap();
        handle.end().unwrap();
        let error = handle.read(&mut [0; 9]).unwrap_err().to_string();
        let wanted = if answer.is_empty() {
            "before the response"
        } else {
            "507 Full"
        };
        assert!(error.contains(wanted), "{error}");
        server.join().unwrap();
    }
}

/// Over TLS, and with much in both directions.
#[test]
fn https_is_http_over_tls() {
    const SIZE: usize = 3_000_000;
    let registry = Registry::standard().with(configured::tls());
    let built = |text: &str| registry.build(&text.parse().unwrap()).unwrap();
    let passive = built("tcp,tls").listen_at("127.0.0.1:0").unwrap();
    let port = passive.endpoint().socket().unwrap().port();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let server = passive.accept().unwrap().with(Wait::within(PATIENCE));
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                assert_eq!(server.read(&mut byte).unwrap(), Some(1));
                head.push(byte[0]);
            }
            if head.starts_with(b"GET") {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
                server.write_all(answer.as_bytes()).unwrap();
                server.write_all(&vec![7; SIZE]).unwrap();
            } else {
                let mut body = vec![0; SIZE];
                server.read_at_least(&mut body, SIZE).unwrap();
                assert!(body.iter().all(|b| *b == 8));
                server.write_all(b"HTTP/1.1 204 OK\r\n\r\n").unwrap();
            }
            server.close().unwrap();
        }
    });
    let url = format!("https://127.0.0.1:{port}/x");
    let open = |text: &str| {
        built(text)
            .connect(&url)
            .unwrap()
            .with(Wait::within(PATIENCE))
    };
    let handle = open("tcp,tls,http");
    let mut all = Vec::new();
    (&handle).read_to_end(&mut all).unwrap();
    assert!(all.len() == SIZE && all.iter().all(|b| *b == 7));
    drop(handle);
    let handle = open(&format!("tcp,tls,http:method=put:size={SIZE}"));
    handle.write_all(&vec![8; SIZE]).unwrap();
    handle.end().unwrap();
    assert_eq!(handle.read(&mut [0]).unwrap(), None);
    server.join().unwrap();
}

#[test]
fn the_client_end_alone_exists() {
    let stack = Stack::parse("tcp,http").unwrap();
    let error = stack.listen_at("http://127.0.0.1/").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let passive = stack.listen_at("127.0.0.1:0").unwrap();
    let error = stack.connect(&passive.contact()).unwrap_err().to_string();
    assert!(error.contains("http://example.org/path"), "{error}");
    let error = Stack::parse("udp,http").unwrap_err().to_string();
    assert!(error.contains("needs order"), "{error}");
}
