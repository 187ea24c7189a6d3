//! Connections over several channels: what becomes of them when channels break, and who may join.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use xdfs_testkit::proxy::{FaultProxy, Plan};

use super::{
    PATIENCE, TO_LOOPBACK, address_of, connect, echo, hello, listening, open_server, ping, request,
    start, tunnel, tunnel_to, wait_until,
};
use crate::support::{Place, Running, Server, content, program};

/// A tunnel to `target` over a proxy before the server.
fn through(
    place: &Place,
    proxy: &FaultProxy,
    target: &str,
    words: &[&str],
) -> (Running, std::net::SocketAddr) {
    let spec = format!("0:{target}");
    let words = [&["-L", spec.as_str()], words].concat();
    listening(&mut tunnel_to(
        place,
        &format!("xdfs://{}", proxy.addr()),
        &words,
    ))
}

/// Sends to one end while the other one reads all of it, and then the other way round.
fn exchange(near: &mut TcpStream, far: &mut TcpStream, bytes: &[u8]) {
    for is_back in [false, true] {
        let (from, to) = match is_back {
            false => (&mut *near, &mut *far),
            true => (&mut *far, &mut *near),
        };
        let got = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut got = Vec::new();
                to.read_to_end(&mut got).unwrap();
                got
            });
            from.write_all(bytes).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
            reading.join().unwrap()
        });
        assert!(got == bytes);
    }
}

#[test]
fn a_connection_survives_the_loss_of_channels() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let proxy = FaultProxy::new(address_of(&server)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (_running, address) = through(&place, &proxy, &target, &["-n", "3"]);
    proxy.set_plan(
        Plan::up(|up| up.cut_after = Some(700_000)).and_down(|down| {
            down.cut_after = Some(900_000);
        }),
    );
    let mut near = connect(address);
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    exchange(&mut near, &mut far, &content(51, 10 << 20));
    // 10 MiB each way, of which a channel carries less than one.
    assert!(proxy.accepted() > 20, "{}", proxy.accepted());
    server.running.wait_for_message("tunnel-end");
    let audit = std::fs::read_to_string(place.here("audit.jsonl")).unwrap();
    let lines = audit
        .lines()
        .filter(|line| line.contains("\"event\":\"authenticate\""));
    // The question at the start, and the connection: channels that join need no login.
    assert_eq!(lines.count(), 2, "{audit}");
}

/// Programs that close at once, while further channels are being opened: what they leave at the
/// server ends with them, and not by its patience with channels that might come back.
#[test]
fn connections_that_close_at_once_leave_nothing() {
    const COUNT: usize = 60;
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let target = echo().to_string();
    let (_running, address) = tunnel(&place, &server, &target, &["-n", "4"]);
    for _ in 0..COUNT {
        connect(address).write_all(b"x").unwrap();
    }
    let ends = || {
        let audit = std::fs::read_to_string(place.here("audit.jsonl")).unwrap_or_default();
        let ends = audit
            .lines()
            .filter(|line| line.contains("\"event\":\"tunnel-end\""));
        ends.map(str::to_owned).collect::<Vec<_>>()
    };
    wait_until("the end of all", || ends().len() == COUNT);
    let late: Vec<_> = ends();
    let late = late
        .iter()
        .filter(|line| line.contains("deadline-exceeded"));
    assert_eq!(late.count(), 0, "{:?}", ends());
}

#[test]
fn a_connection_survives_the_loss_of_all_channels_at_once() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let proxy = FaultProxy::new(address_of(&server)).unwrap();
    let (_running, address) = through(&place, &proxy, &echo().to_string(), &["-n", "4"]);
    let mut stream = connect(address);
    for _ in 0..3 {
        ping(&mut stream);
        assert!(proxy.cut_all() > 0);
        ping(&mut stream);
    }
}

#[test]
fn a_break_at_one_end_is_no_orderly_end_at_the_other() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let (_running, address) = tunnel(&place, &server, &target, &["-n", "2"]);
    for breaks_near in [false, true] {
        let near = connect(address);
        let (far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut broken, mut other) = match breaks_near {
            true => (near, far),
            false => (far, near),
        };
        broken.write_all(&[1; 1000]).unwrap();
        // A socket that is closed with unread bytes resets its connection.
        other.write_all(b"unread").unwrap();
        assert_eq!(broken.peek(&mut [0]).unwrap(), 1);
        drop(broken);
        let end = loop {
            match other.read(&mut [0; 4096]) {
                Ok(0) => panic!("it reads an orderly end"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    }
}

#[test]
fn a_tunnel_that_is_ended_breaks_its_connections() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    for channels in ["1", "4"] {
        for reads_near in [false, true] {
            let words = ["-n", channels];
            let (mut running, address) = tunnel(&place, &server, &target, &words);
            let near = connect(address);
            let (far, _) = listener.accept().unwrap();
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            far.set_write_timeout(Some(PATIENCE)).unwrap();
            let (mut reader, mut writer) = match reads_near {
                true => (near, far),
                false => (far, near),
            };
            let writing =
                std::thread::spawn(move || while writer.write_all(&[1; 65536]).is_ok() {});
            // It moves, and more is on its way.
            reader.read_exact(&mut vec![0; 3 << 20]).unwrap();
            running.signal("INT");
            let end = loop {
                match reader.read(&mut [0; 65536]) {
                    Ok(0) => panic!("it reads an orderly end, {channels} {reads_near}"),
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
            writing.join().unwrap();
            assert_eq!(running.wait().code, Some(0));
        }
    }
}

#[test]
fn many_connections_one_after_the_other_have_channels_each() {
    let place = Place::new();
    let server = start(&place, &[TO_LOOPBACK]);
    let (_running, address) = tunnel(&place, &server, &echo().to_string(), &["-n", "2"]);
    for _ in 0..300 {
        ping(&mut connect(address));
    }
}

#[test]
fn a_server_that_dies_breaks_its_bundles() {
    let place = Place::new();
    let mut server = start(&place, &[TO_LOOPBACK]);
    let (_running, address) = tunnel(&place, &server, &echo().to_string(), &["-n", "2"]);
    let mut stream = connect(address);
    stream.set_read_timeout(Some(2 * PATIENCE)).unwrap();
    ping(&mut stream);
    server.running.kill();
    let end = stream.read(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
}

#[test]
fn numbers_of_channels_out_of_range_are_refused() {
    for number in ["0", "65", "x"] {
        let mut command = program();
        command.args(["tunnel", "-L", "0:a:1", "xdfs://127.0.0.1", "-n", number]);
        Running::start(&mut command)
            .wait()
            .fails(2, &["--channels"]);
    }
}

/// A server for everybody.
fn public(place: &Place) -> Server {
    let rule = format!("[[tunnel.connect]]\n{TO_LOOPBACK}\n");
    open_server(place, &rule.replace("user = \"*\"", "public = true"))
}

/// Opens a channel, and reads the answer up to TUNNEL-OK.
fn channel(server: &Server, purpose: u8, target: &str, bundle: u64) -> TcpStream {
    let mut stream = connect(address_of(server));
    let request = request(purpose, target.as_bytes(), 0, bundle);
    stream.write_all(&[hello(), request].concat()).unwrap();
    // WELCOME with the feature is as long as HELLO.
    let mut welcome = vec![0; hello().len()];
    stream.read_exact(&mut welcome).unwrap();
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[0], 0x0c, "{welcome:?} {header:?}");
    let mut address = vec![0; header[7].into()];
    stream.read_exact(&mut address).unwrap();
    stream
}

/// The hello of `ptcp`: `secret` is that of the bundle, or a proof.
fn begin(kind: u8, secret: u8) -> Vec<u8> {
    let mut hello = vec![0; 72];
    hello[..6].copy_from_slice(&[b'x', b'P', b'T', b'C', 1, kind]);
    match kind {
        1 => {
            hello[9] = 4;
            hello[37] = 1;
        }
        _ => {
            hello[7] = 1;
            hello[15] = 1;
        }
    }
    hello[16..32].fill(9);
    hello[40..].fill(secret);
    hello
}

/// The verdict of `ptcp` about a channel.
fn verdict(stream: &mut TcpStream) -> u8 {
    let mut answer = [0; 48];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[..4], b"xPTC");
    answer[5]
}

#[test]
fn nobody_joins_a_bundle_without_its_secret() {
    let place = Place::new();
    let server = public(&place);
    let target = echo().to_string();
    let mut first = channel(&server, 1, &target, 77);
    first.write_all(&begin(1, 5)).unwrap();
    assert_eq!(verdict(&mut first), 0);
    // Whoever knows its number only.
    let mut second = channel(&server, 4, &target, 77);
    second.write_all(&begin(2, 5)).unwrap();
    assert_eq!(verdict(&mut second), 2);
    assert_eq!(second.read(&mut [0]).unwrap_or(0), 0);
    // Nor can it begin a bundle in the name of another one.
    let mut third = channel(&server, 4, &target, 77);
    third.write_all(&begin(1, 6)).unwrap();
    assert_eq!(verdict(&mut third), 2);
    // The number is taken, and others don't exist.
    for (purpose, target, bundle) in [
        (1, target.as_str(), 77),
        (4, target.as_str(), 78),
        (4, "127.0.0.1:1", 77),
    ] {
        let mut stream = connect(address_of(&server));
        let request = request(purpose, target.as_bytes(), 0, bundle);
        stream.write_all(&[hello(), request].concat()).unwrap();
        let mut answer = Vec::new();
        // A reset behind the answer is none of the test's business.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.contains(&0x7f), "{purpose} {bundle}: {answer:?}");
    }
    // The bundle goes on: a piece of two bytes, which comes back.
    let mut piece = vec![0x11, 0, 0, 0, 0, 0, 0, 2];
    piece.extend([0; 16]);
    piece.extend(b"hi");
    first.write_all(&piece).unwrap();
    let mut frames = Vec::new();
    while !frames.ends_with(b"hi") {
        let mut byte = [0];
        first.read_exact(&mut byte).unwrap();
        frames.push(byte[0]);
    }
}

#[test]
fn channels_that_say_nothing_cost_a_server_little() {
    let place = Place::new();
    let server = public(&place);
    let target = echo().to_string();
    // The bundle never begins, and its channels say nothing.
    let _first = channel(&server, 1, &target, 5);
    let silent: Vec<TcpStream> = (0..300)
        .map(|_| {
            let stream = connect(address_of(&server));
            let request = request(4, target.as_bytes(), 0, 5);
            (&stream).write_all(&[hello(), request].concat()).unwrap();
            stream
        })
        .collect();
    let words = ["--insecure", "-n", "4"];
    let (_running, address) = tunnel(&place, &server, &target, &words);
    ping(&mut connect(address));
    // The server gives each of them up.
    for mut stream in silent {
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest);
        let is_late = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
        assert!(!end.is_err_and(|error| is_late(&error)), "{rest:?}");
    }
    ping(&mut connect(address));
}
