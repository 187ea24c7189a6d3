//! Transports that the suite of all drivers doesn't cover: those that can't listen, datagrams,
//! and TCP Fast Open.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use xdfs_xio::{Handle, Stack, Wait};

#[cfg(target_os = "linux")]
#[path = "support/end.rs"]
#[expect(dead_code, reason = "it can do more than is needed here")]
mod end;
#[cfg(target_os = "linux")]
#[path = "transports/fast_open.rs"]
mod fast_open;

const PATIENCE: Duration = Duration::from_secs(60);

fn stack(text: &str) -> Stack {
    Stack::parse(text).unwrap()
}

fn connect(text: &str, contact: &str) -> Handle {
    let handle = stack(text).connect(contact).unwrap();
    handle.with(Wait::within(PATIENCE))
}

fn read_all(handle: &Handle) -> Vec<u8> {
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut &*handle, &mut all).unwrap();
    all
}

#[test]
fn transports_that_only_open_say_so() {
    for (text, contact) in [
        ("file", "file:/tmp/x"),
        ("process", "process:cat"),
        ("stdio", "stdio:"),
    ] {
        let error = stack(text).listen_at(contact).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(
            error.to_string(),
            format!("the transport {text} can't listen")
        );
    }
}

mod files {
    use super::*;

    fn file(content: &[u8]) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a file");
        fs::write(&path, content).unwrap();
        (folder, format!("file:{}", path.display()))
    }

    fn path(contact: &str) -> &str {
        contact.strip_prefix("file:").unwrap()
    }

    #[test]
    fn a_part_of_a_file_is_read() {
        let (_folder, contact) = file(b"0123456789");
        for (text, wanted) in [
            ("file", "0123456789"),
            ("file:offset=4", "456789"),
            ("file:offset=4:length=3", "456"),
            ("file:length=0", ""),
            ("file:length=10", "0123456789"),
            ("file:offset=11", ""),
        ] {
            let read = read_all(&connect(text, &contact));
            assert_eq!(String::from_utf8(read).unwrap(), wanted, "{text}");
        }
        // Without the name of the transport, and in pieces.
        let handle = connect("file", path(&contact));
        let mut piece = [0; 3];
        assert_eq!(handle.read(&mut piece).unwrap(), Some(3));
        assert_eq!(handle.read_at_least(&mut piece, 3).unwrap(), Some(3));
        assert_eq!(&piece, b"345");
    }

    #[test]
    fn a_file_that_ends_early_is_an_error() {
        let (_folder, contact) = file(b"0123");
        let handle = connect("file:offset=1:length=5", &contact);
        let mut room = [0; 9];
        assert_eq!(handle.read(&mut room).unwrap(), Some(3));
        for _ in 0..2 {
            let error = handle.read(&mut room).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
            let text = error.to_string();
            assert!(
                text.ends_with("ends 2 bytes before the length that was set"),
                "{text}"
            );
        }
    }

    #[test]
    fn files_are_written_as_their_attributes_say() {
        for (text, wanted) in [
            ("file:access=write", "abc3456789"),
            ("file:access=write:offset=8", "01234567abc"),
            ("file:access=write:append=true", "0123456789abc"),
            ("file:access=write:truncate=true", "abc"),
            ("file:access=both:offset=3", "012abc6789"),
        ] {
            let (_folder, contact) = file(b"0123456789");
            let handle = connect(text, &contact);
            handle.write_all(b"ab").unwrap();
            handle.write_all(b"c").unwrap();
            handle.close().unwrap();
            assert_eq!(
                fs::read_to_string(path(&contact)).unwrap(),
                wanted,
                "{text}"
            );
        }
        let (folder, _) = file(b"");
        let contact = format!("file:{}", folder.path().join("new").display());
        let missing = stack("file:access=write").connect(&contact).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let handle = connect("file:access=write:create=true:length=4", &contact);
        let full = handle.write_all(b"12345").unwrap_err();
        assert_eq!(full.kind(), ErrorKind::FileTooLarge);
        assert_eq!(fs::read_to_string(path(&contact)).unwrap(), "1234");
    }

    #[test]
    fn both_directions_have_positions_of_their_own() {
        let (_folder, contact) = file(b"0123456789");
        let handle = connect("file:access=both", &contact);
        handle.write_all(b"abcdef").unwrap();
        let mut room = [0; 4];
        assert_eq!(handle.read(&mut room).unwrap(), Some(4));
        assert_eq!(&room, b"abcd");
        handle.end().unwrap();
        assert_eq!(
            handle.write(b"x").unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        assert_eq!(read_all(&handle), b"ef6789");
    }

    /// A folder whose file system can pass the page cache, as that of temporary files may not.
    #[cfg(target_os = "linux")]
    fn on_disk() -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let contact = format!("file:{}", folder.path().join("probe").display());
        let probe = stack("file:access=write:create=true:direct=true").connect(&contact);
        if probe.is_err() {
            xdfs_testkit::skip::test("the file system can't pass the page cache");
        }
        probe.ok().map(|_| folder)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_past_the_page_cache_have_the_same_bytes() {
        let Some(folder) = on_disk() else { return };
        let at = folder.path().join("direct");
        let contact = format!("file:{}", at.display());
        let bytes: Vec<u8> = (0..3_300_007_u32).map(|i| (i * 7 % 251) as u8).collect();
        for (offset, end) in [
            (0, bytes.len()),
            (8192, 8192),
            (4096, 8192),
            (4096, 100_001),
        ] {
            fs::write(&at, vec![9; 10_000]).unwrap();
            let attributes = format!("file:access=write:direct=true:offset={offset}");
            let handle = connect(&attributes, &contact);
            let mut rest = &bytes[offset..end];
            let mut size = 1;
            while !rest.is_empty() {
                let (part, after) = rest.split_at(rest.len().min(size));
                handle.write_all(part).unwrap();
                rest = after;
                size = size * 3 % 500_009 + 1;
                if size % 5 == 0 {
                    // A part of a block, which is written again later.
                    handle.flush().unwrap();
                    let there = fs::read(&at).unwrap();
                    let written = end - rest.len();
                    assert!(there[offset..written] == bytes[offset..written]);
                }
            }
            handle.close().unwrap();
            let mut expected = vec![9; 10_000.max(end)];
            expected[offset..end].copy_from_slice(&bytes[offset..end]);
            assert!(fs::read(&at).unwrap() == expected, "{offset} {end}");
        }
        fs::write(&at, &bytes).unwrap();
        for (offset, length) in [(0, bytes.len()), (4096, 100_000), (5, 4091), (3_300_000, 7)] {
            let attributes = format!("file:direct=true:offset={offset}:length={length}");
            let handle = connect(&attributes, &contact);
            let mut got = vec![0; length];
            let mut filled = 0;
            while filled < length {
                let most = length.min(filled + 70_001);
                filled += handle.read(&mut got[filled..most]).unwrap().unwrap();
            }
            assert!(got == bytes[offset..offset + length], "{offset} {length}");
            assert_eq!(handle.read(&mut [0]).unwrap(), None);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_cannot_pass_the_page_cache_is_refused() {
        let (_folder, contact) = file(b"precious");
        for (text, cause) in [
            ("file:access=both:direct=true", "access=read"),
            (
                "file:access=write:append=true:direct=true",
                "without append",
            ),
            ("file:access=write:offset=5:direct=true", "multiple of 4096"),
        ] {
            let error = stack(text).connect(&contact).unwrap_err();
            assert!(error.to_string().contains(cause), "{text}: {error}");
        }
    }

    #[test]
    fn wrong_directions_and_things_that_are_no_files_are_refused() {
        let (folder, contact) = file(b"precious");
        let error = connect("file", &contact).write(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let error = connect("file:access=write", &contact)
            .read(&mut [0])
            .unwrap_err();
        assert!(error.to_string().contains("access=read"), "{error}");
        for text in ["file:truncate=true", "file:append=true", "file:create=true"] {
            let error = stack(text).connect(&contact).unwrap_err();
            assert!(error.to_string().contains("access=write"), "{error}");
        }
        assert_eq!(fs::read(path(&contact)).unwrap(), b"precious");
        let contact = format!("file:{}", folder.path().display());
        stack("file").connect(&contact).unwrap_err();
        #[cfg(unix)]
        {
            let pipe = folder.path().join("pipe");
            let made = std::process::Command::new("mkfifo").arg(&pipe).status();
            assert!(made.unwrap().success());
            let contact = format!("file:{}", pipe.display());
            // Without another end, an open for reading would hold.
            let error = stack("file").connect(&contact).unwrap_err();
            assert!(error.to_string().contains("not a file"), "{error}");
        }
    }

    #[test]
    fn a_file_is_always_ready_for_those_that_wait() {
        let (_folder, contact) = file(b"x");
        let mut stream = connect("file", &contact).into_stream().unwrap();
        let mut poller = xdfs_sys::poll::Poller::new().unwrap();
        stream
            .register(&mut poller, xdfs_sys::poll::Token(3))
            .unwrap();
        let mut events = Vec::new();
        poller.wait(&mut events, Some(PATIENCE)).unwrap();
        assert!(events[0].readable && events[0].writable);
    }
}

#[cfg(target_os = "linux")]
mod processes {
    use super::*;

    #[test]
    fn a_programs_pipes_are_a_stream() {
        let handle = connect("process", "process:sort -r");
        handle.write_all(b"a\nc\nb\n").unwrap();
        handle.end().unwrap();
        assert_eq!(read_all(&handle), b"c\nb\na\n");
        let status = handle.control("process.status").unwrap();
        assert_eq!(status.to_string(), "exit status: 0");
    }

    #[test]
    fn much_goes_both_ways_at_once() {
        const TOTAL: usize = 8 << 20;
        let handle = connect("process", "cat");
        let writer = {
            let handle = handle.clone();
            std::thread::spawn(move || {
                handle.write_all(&vec![3; TOTAL]).unwrap();
                handle.end().unwrap();
            })
        };
        let all = read_all(&handle);
        assert!(all.len() == TOTAL && all.iter().all(|b| *b == 3));
        writer.join().unwrap();
    }

    #[test]
    fn words_are_quoted_and_a_shell_is_asked_for() {
        let words = connect("process", r#"process:printf "%s|" 'a  b' "$HOME" c\ d"#);
        assert_eq!(read_all(&words), b"a  b|$HOME|c d|");
        let shell = connect("process:shell=true", "process:printf a; printf b | cat");
        assert_eq!(read_all(&shell), b"ab");
        let open = stack("process").connect("process:echo 'a").unwrap_err();
        assert_eq!(open.kind(), ErrorKind::InvalidInput);
        let none = stack("process")
            .connect("process:/no/such/program")
            .unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
        assert!(none.to_string().contains("/no/such/program"), "{none}");
    }

    #[test]
    fn a_failure_comes_instead_of_the_end() {
        for (command, wanted) in [
            ("printf x; exit 3", "exit status: 3"),
            ("printf x; kill -9 $$", "signal: 9"),
        ] {
            let handle = connect("process:shell=true", command);
            let mut room = [0; 9];
            assert_eq!(handle.read(&mut room).unwrap(), Some(1));
            for _ in 0..2 {
                let error = handle.read(&mut room).unwrap_err().to_string();
                assert!(error.contains(wanted), "{error}");
            }
            let status = handle.control("process.status").unwrap().to_string();
            assert!(status.contains(wanted), "{status}");
        }
    }

    /// The output ends long before the program does.
    #[test]
    fn the_end_waits_for_the_program() {
        let handle = connect("process:shell=true", "exec >&-; read line; exit 5");
        let soon = handle.with(Wait::within(Duration::from_millis(100)));
        let early = soon.read(&mut [0]).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::TimedOut);
        assert_eq!(handle.control("process.status"), None);
        let reader = {
            let handle = handle.clone();
            std::thread::spawn(move || handle.read(&mut [0]).unwrap_err().to_string())
        };
        handle.write_all(b"go on\n").unwrap();
        let error = reader.join().unwrap();
        assert!(error.contains("exit status: 5"), "{error}");
    }

    #[test]
    fn a_dropped_stream_ends_its_program() {
        let handle = connect("process", "sleep 1000");
        let id = handle.control("process.id").unwrap();
        let proc = format!("/proc/{id}");
        assert!(fs::exists(&proc).unwrap());
        drop(handle);
        // It is reaped, so not even a zombie is left.
        assert!(!fs::exists(&proc).unwrap());
    }

    #[test]
    fn a_program_that_is_gone_takes_no_input() {
        let handle = connect("process", "true");
        assert_eq!(read_all(&handle), b"");
        let start = Instant::now();
        let error = loop {
            match handle.write(b"x") {
                Ok(_) => assert!(start.elapsed() < PATIENCE),
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}

#[cfg(unix)]
mod stdio {
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use xdfs_xio::Stream;
    use xdfs_xio::stdio::StdioStream;

    use super::*;

    fn handle(input: impl Into<OwnedFd>, output: impl Into<OwnedFd>) -> Handle {
        let stream = StdioStream::new(input.into(), output.into()).unwrap();
        let stream: Box<dyn Stream> = Box::new(stream);
        Handle::from(stream).with(Wait::within(PATIENCE))
    }

    #[test]
    fn pipes_carry_much_and_wait() {
        const TOTAL: usize = 2 << 20;
        let (far_in, near_out) = std::io::pipe().unwrap();
        let (near_in, far_out) = std::io::pipe().unwrap();
        let near = handle(near_in, near_out);
        let far = handle(far_in, far_out);
        let soon = near.with(Wait::within(Duration::from_millis(20)));
        assert_eq!(soon.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
        let echo = std::thread::spawn(move || {
            let mut room = vec![0; 50_000];
            while let Some(n) = far.read(&mut room).unwrap() {
                far.write_all(&room[..n]).unwrap();
            }
            far.close().unwrap();
        });
        let writer = {
            let near = near.clone();
            std::thread::spawn(move || {
                near.write_all(&vec![6; TOTAL]).unwrap();
                near.end().unwrap();
            })
        };
        let all = read_all(&near);
        assert!(all.len() == TOTAL && all.iter().all(|b| *b == 6));
        writer.join().unwrap();
        echo.join().unwrap();
    }

    #[test]
    fn files_in_both_places_are_always_ready() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::write(&input, b"hello").unwrap();
        let made = fs::File::create(&output).unwrap();
        let handle = handle(fs::File::open(&input).unwrap(), made);
        let mut stream = handle.with(Wait::forever());
        drop(handle);
        assert_eq!(read_all(&stream), b"hello");
        stream.write_all(&vec![1; 100_000]).unwrap();
        // Registered too: epoll refuses files, which is handled.
        let mut poller = xdfs_sys::poll::Poller::new().unwrap();
        let mut registered = stream.into_stream().unwrap();
        registered
            .register(&mut poller, xdfs_sys::poll::Token(4))
            .unwrap();
        let mut events = Vec::new();
        poller.wait(&mut events, Some(PATIENCE)).unwrap();
        assert!(events.iter().any(|e| e.readable) && events.iter().any(|e| e.writable));
        registered.deregister(&mut poller).unwrap();
        stream = Handle::from(registered);
        stream.close().unwrap();
        assert_eq!(fs::metadata(&output).unwrap().len(), 100_000);
    }

    #[test]
    fn closing_leaves_the_input_to_others() {
        let (input, mut far_out) = std::io::pipe().unwrap();
        let (_far_in, output) = std::io::pipe().unwrap();
        let mut copy = input.try_clone().unwrap();
        std::io::Write::write_all(&mut far_out, b"for later").unwrap();
        let handle = handle(input, output);
        let mut room = [0; 4];
        assert_eq!(handle.read(&mut room).unwrap(), Some(4));
        handle.close().unwrap();
        let mut rest = [0; 5];
        std::io::Read::read_exact(&mut copy, &mut rest).unwrap();
        assert_eq!(&rest, b"later");
    }

    /// Another process shares the pipe, and would notice a change of its mode.
    #[test]
    fn the_mode_of_the_descriptors_stays() {
        let (input, _far_out) = std::io::pipe().unwrap();
        let (_far_in, output) = std::io::pipe().unwrap();
        let (in_copy, out_copy) = (input.try_clone().unwrap(), output.try_clone().unwrap());
        let handle = handle(input, output);
        let soon = handle.with(Wait::within(Duration::from_millis(20)));
        soon.read(&mut [0]).unwrap_err();
        soon.write_all(&vec![0; 1 << 20]).unwrap_err();
        for flags in [
            rustix::fs::fcntl_getfl(&in_copy).unwrap(),
            rustix::fs::fcntl_getfl(&out_copy).unwrap(),
        ] {
            assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
        }
    }

    /// Set for the process that the next test starts.
    const CHILD: &str = "XDFS_TEST_STDIO";

    #[test]
    fn the_standard_streams_of_a_process() {
        if std::env::var_os(CHILD).is_some() {
            let handle = connect("stdio", "stdio:");
            let text = read_all(&handle);
            handle.write_all(b"<<").unwrap();
            handle.write_all(&text).unwrap();
            handle.write_all(b">>").unwrap();
            handle.close().unwrap();
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "stdio::the_standard_streams_of_a_process",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, b"from the parent").unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("<<from the parent>>"), "{text}");
    }
}

#[cfg(target_os = "linux")]
mod datagrams {
    use std::net::UdpSocket;

    use xdfs_xio::{Driver, Passive, Property, Registry};

    use super::*;

    fn listen(text: &str) -> Passive {
        let passive = stack(text).listen_at("127.0.0.1:0").unwrap();
        passive.with(Wait::within(PATIENCE))
    }

    fn accept(passive: &Passive) -> Handle {
        passive.accept().unwrap().with(Wait::within(PATIENCE))
    }

    #[test]
    fn each_read_returns_one_datagram() {
        let passive = listen("udp");
        let client = connect("udp", &passive.contact());
        let parts = [std::io::IoSlice::new(b"on"), std::io::IoSlice::new(b"e")];
        assert_eq!(client.write_vectored(&parts).unwrap(), 3);
        assert_eq!(client.write(b"two and more").unwrap(), 12);
        assert_eq!(client.write(b"").unwrap(), 0);
        let largest = vec![4; 65_507];
        assert_eq!(client.write(&largest).unwrap(), 65_507);
        let server = accept(&passive);
        let mut room = vec![0; 70_000];
        assert_eq!(server.read(&mut room).unwrap(), Some(3));
        assert_eq!(&room[..3], b"one");
        assert_eq!(server.read(&mut room).unwrap(), Some(12));
        assert_eq!(server.read(&mut room).unwrap(), Some(65_507));
        assert!(room[..65_507].iter().all(|b| *b == 4));
        server.write(b"answer").unwrap();
        assert_eq!(client.read(&mut room).unwrap(), Some(6));
    }

    #[test]
    fn a_datagram_that_does_not_fit_is_an_error_and_the_next_one_is_whole() {
        let passive = listen("udp:size=100");
        let client = connect("udp", &passive.contact());
        for size in [5, 101, 6, 7] {
            client.write(&vec![1; size]).unwrap();
        }
        let server = accept(&passive);
        let mut room = [0; 200];
        let error = server.read(&mut room[..4]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("5 bytes was lost"), "{error}");
        let error = server.read(&mut room).unwrap_err();
        assert!(error.to_string().contains("101 bytes was lost"), "{error}");
        let mut two = [0; 3];
        let mut more = [0; 4];
        let mut bufs = [
            std::io::IoSliceMut::new(&mut two),
            std::io::IoSliceMut::new(&mut more),
        ];
        assert_eq!(server.read_vectored(&mut bufs).unwrap(), Some(6));
        assert_eq!(server.read(&mut room).unwrap(), Some(7));
        let error = server.write(&[0; 101]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    /// Many peers send at once, before and after their streams are made.
    #[test]
    fn peers_are_told_apart() {
        let passive = listen("udp");
        let address = passive.endpoint().socket().unwrap();
        let peers: Vec<UdpSocket> = (0..40_u8)
            .map(|i| {
                let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
                peer.set_read_timeout(Some(PATIENCE)).unwrap();
                peer.connect(address).unwrap();
                peer.send(&[i, 0]).unwrap();
                peer.send(&[i, 1]).unwrap();
                peer
            })
            .collect();
        let streams: Vec<Handle> = peers.iter().map(|_| accept(&passive)).collect();
        let mut seen = [0; 9];
        for stream in &streams {
            assert_eq!(stream.read(&mut seen).unwrap(), Some(2));
            let peer = seen[0];
            assert_eq!(seen[1], 0);
            assert_eq!(stream.read(&mut seen).unwrap(), Some(2));
            assert_eq!(seen[..2], [peer, 1]);
            stream.write(&[peer]).unwrap();
        }
        for (i, peer) in peers.iter().enumerate() {
            assert_eq!(peer.recv(&mut seen).unwrap(), 1);
            assert_eq!(usize::from(seen[0]), i);
            peer.send(b"later").unwrap();
        }
        for stream in &streams {
            assert_eq!(stream.read(&mut seen).unwrap(), Some(5));
        }
        // Nobody new has come.
        let soon = passive.with(Wait::within(Duration::from_millis(20)));
        assert_eq!(soon.accept().unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn an_address_has_one_listener() {
        let passive = listen("udp");
        let again = stack("udp").listen_at(&passive.contact()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        let all = stack("udp").listen_at("0.0.0.0:0").unwrap_err();
        assert_eq!(all.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn nobody_there_is_told_late() {
        let gone = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let client = connect("udp", &gone.to_string());
        client.write(b"x").unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn closing_ends_writing_alone() {
        let passive = listen("udp");
        let client = connect("udp", &passive.contact());
        client.write(b"x").unwrap();
        let server = accept(&passive);
        client.end().unwrap();
        assert_eq!(
            client.write(b"y").unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
        server.write(b"z").unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), Some(1));
        client.close().unwrap();
    }

    #[test]
    fn what_needs_order_is_refused_above_it() {
        let refused = Stack::parse("udp,tls").unwrap_err().to_string();
        assert!(refused.contains("needs order"), "{refused}");
        let registry = Registry::standard();
        let unordered = registry
            .drivers()
            .filter(|d| d.form().is_some() && !d.given().contains(&Property::Order));
        assert_eq!(unordered.map(Driver::name).collect::<Vec<_>>(), ["udp"]);
    }
}
