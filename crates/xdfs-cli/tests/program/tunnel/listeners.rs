//! Ports at the server whose connections come to this side.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::{
    PATIENCE, address_of, connect, echo, hello, listening, open_server, ping, request, serve,
    settings_of, tunnel_command, wait_until,
};
use crate::support::{Place, Running, Server, content};

const ON_LOOPBACK: &str = "user = \"*\"\nhost = \"127.0.0.1\"\nports = \"*\"";

fn start(place: &Place, rules: &[&str]) -> Server {
    let config = settings_of(place, "listen", rules);
    serve(place, &["--config", &config])
}

/// A tunnel from a port of the server to `target`, and that port.
fn remote(place: &Place, server: &Server, target: &str, more: &[&str]) -> (Running, SocketAddr) {
    let spec = format!("0:{target}");
    let words = [&["-R", spec.as_str()], more].concat();
    listening(&mut tunnel_command(place, server, &words))
}

#[test]
fn bytes_arrive_both_ways_and_each_end_is_passed_on_by_itself() {
    let place = Place::new();
    let server = start(&place, &[ON_LOOPBACK]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let sent = content(61, 3 << 20);
    for channels in ["1", "4"] {
        let (running, address) = remote(&place, &server, &target, &["-v", "-n", channels]);
        let mut far = connect(address);
        let (mut near, _) = listener.accept().unwrap();
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        let (from, to) = (&mut far, &mut near);
        let got = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut got = Vec::new();
                to.read_to_end(&mut got).unwrap();
                got
            });
            from.write_all(&sent).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
            reading.join().unwrap()
        });
        assert!(got == sent);
        // The other direction goes on.
        to.write_all(&sent).unwrap();
        to.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        from.read_to_end(&mut back).unwrap();
        assert!(back == sent);
        running.wait_for_message("is connected to 127.0.0.1");
    }
}

#[test]
fn nothing_is_listened_on_without_a_rule() {
    let place = Place::new();
    for (rules, spec) in [
        (vec![], "0:localhost:1"),
        (vec![ON_LOOPBACK], "*:0:localhost:1"),
        (vec![ON_LOOPBACK], "unix:/tmp/never:localhost:1"),
        // "*" is never the server's own loopback, nor every address.
        (
            vec!["user = \"*\"\nhost = \"*\"\nports = \"*\""],
            "0:localhost:1",
        ),
        (
            vec!["user = \"*\"\nhost = \"*\"\nports = \"*\""],
            "*:0:localhost:1",
        ),
        (
            vec!["user = \"*\"\nhost = \"127.0.0.1\"\nports = \"1\""],
            "2:localhost:1",
        ),
        (
            vec!["user = \"b\"\nhost = \"127.0.0.1\"\nports = \"*\""],
            "0:localhost:1",
        ),
    ] {
        // A server without any rule has no tunnels at all.
        let (code, cause) = match rules.is_empty() {
            true => (10, "no tunnels"),
            false => (5, "doesn't allow"),
        };
        let server = start(&place, &rules);
        let words = ["-R", spec];
        let run = Running::start(&mut tunnel_command(&place, &server, &words)).wait();
        run.fails(code, &[cause]);
    }
}

#[test]
fn a_port_that_is_taken_is_told() {
    let place = Place::new();
    let server = start(&place, &[ON_LOOPBACK]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = format!("{}:localhost:1", taken.local_addr().unwrap().port());
    let run = Running::start(&mut tunnel_command(&place, &server, &["-R", &spec])).wait();
    run.fails(15, &["listen for the tunnel", "in use", "another port"]);
}

#[test]
fn a_target_that_nobody_listens_at_is_told_and_the_port_stays() {
    let place = Place::new();
    let server = start(&place, &[ON_LOOPBACK]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = free.local_addr().unwrap();
    drop(free);
    for channels in ["1", "3"] {
        let words = ["-n", channels];
        let (running, address) = remote(&place, &server, &target.to_string(), &words);
        let mut stream = connect(address);
        let end = stream.read(&mut [0]).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
        running.wait_for_message("connect to the target on this side");
        let listener = TcpListener::bind(target).unwrap();
        let _stream = connect(address);
        listener.accept().unwrap();
    }
}

#[test]
fn a_client_that_dies_frees_the_port() {
    let place = Place::new();
    let server = start(&place, &[ON_LOOPBACK]);
    let (mut running, address) = remote(&place, &server, &echo().to_string(), &[]);
    let mut stream = connect(address);
    ping(&mut stream);
    running.kill();
    let end = stream.read(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    wait_until("the port is free", || TcpStream::connect(address).is_err());
}

#[test]
fn a_server_that_comes_back_listens_again() {
    let place = Place::new();
    let config = settings_of(&place, "listen", &[ON_LOOPBACK]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let serve = || serve(&place, &["--config", &config, "--listen", &at]);
    let mut server = serve();
    let (running, address) = remote(&place, &server, &echo().to_string(), &["-v"]);
    ping(&mut connect(address));
    server.running.kill();
    running.wait_for_message("this side asks again");
    let _server = serve();
    running.wait_for_message("the server listens on 127.0.0.1");
    // At the same port, though any would have done.
    ping(&mut connect(address));
}

#[test]
fn a_server_that_comes_back_listens_at_another_port_if_the_rules_want_it() {
    let place = Place::new();
    let any = "user = \"*\"\nhost = \"localhost\"\nports = \"0\"";
    let config = settings_of(&place, "listen", &[any]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap().to_string();
    drop(free);
    let serve = || serve(&place, &["--config", &config, "--listen", &at]);
    let mut server = serve();
    let spec = format!("localhost:0:{}", echo());
    let words = ["--json", "-R", spec.as_str()];
    let running = Running::start(&mut tunnel_command(&place, &server, &words));
    // That of the last line.
    let address = |lines: String| -> SocketAddr {
        let (_, rest) = lines.rsplit_once("\"address\":\"").unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    ping(&mut connect(address(
        running.wait_for_output("\"listening\""),
    )));
    server.running.kill();
    let _server = serve();
    // The port of before is none that the rules name.
    running.wait_for_output("doesn't allow this user that port");
    ping(&mut connect(address(running.wait_for_output("\"back\""))));
}

#[test]
fn a_reload_that_takes_the_right_away_ends_the_listener() {
    for bind in ["", "localhost:"] {
        reload(bind);
    }
}

fn reload(bind: &str) {
    let place = Place::new();
    let loopback = "user = \"*\"\nhost = \"127.0.0.0/8\"\nports = \"*\"";
    let server = start(&place, &[loopback]);
    let spec = format!("{bind}0:{}", echo());
    let words = ["-R", spec.as_str()];
    let (running, address) = listening(&mut tunnel_command(&place, &server, &words));
    let mut stream = connect(address);
    ping(&mut stream);
    settings_of(
        &place,
        "listen",
        &["user = \"*\"\nhost = \"10.0.0.1\"\nports = \"*\""],
    );
    server.running.signal("HUP");
    // The listener, and its connection.
    server.running.wait_for_message("tunnels_ended=2");
    let end = stream.read(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    running.wait_for_message("listen at the server");
    wait_until("the port is free", || TcpStream::connect(address).is_err());
    // At the same port, though any would have done.
    settings_of(&place, "listen", &[loopback]);
    server.running.signal("HUP");
    wait_until("it listens again", || TcpStream::connect(address).is_ok());
    ping(&mut connect(address));
}

#[test]
fn bytes_behind_a_request_to_listen_are_refused() {
    let place = Place::new();
    let rule = format!("[[tunnel.listen]]\n{ON_LOOPBACK}\n");
    let server = open_server(&place, &rule.replace("user = \"*\"", "public = true"));
    let mut control = connect(address_of(&server));
    let request = request(2, b"127.0.0.1:0", 0, 0);
    let bytes = [hello(), request, b"x".to_vec()].concat();
    control.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    // A reset behind the answer is none of the test's business.
    let _ = control.read_to_end(&mut answer);
    assert!(answer.contains(&0x7f), "{answer:?}");
}

#[test]
fn a_peer_that_takes_nothing_costs_little() {
    let place = Place::new();
    let rule = format!("[[tunnel.listen]]\n{ON_LOOPBACK}\n");
    let server = open_server(&place, &rule.replace("user = \"*\"", "public = true"));
    let mut control = connect(address_of(&server));
    let request = request(2, b"127.0.0.1:0", 0, 0);
    control.write_all(&[hello(), request].concat()).unwrap();
    let mut answer = vec![0; hello().len() + 8];
    control.read_exact(&mut answer).unwrap();
    let length = *answer.last().unwrap();
    let mut address = vec![0; length.into()];
    control.read_exact(&mut address).unwrap();
    let address: SocketAddr = std::str::from_utf8(&address[2..]).unwrap().parse().unwrap();
    let waiting: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
    // Each is given up in its turn: 256 after ten seconds, and the others ten later.
    for mut stream in waiting {
        let end = stream.read(&mut [0]).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    }
    // Whatever it says on this channel ends the listener.
    control.write_all(b"x").unwrap();
    wait_until("the port is free", || {
        TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err()
    });
}
