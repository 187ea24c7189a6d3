//! Peers that say nothing, or speak something else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs::security::ServerSecurity;
use xdfs::{Code, DataNodeSettings, LocalPlace, ServerBuilder};
use xdfs_proto::handshake::{Initiator, InitiatorStep, Purpose};
use xdfs_testkit::skip;

use crate::raw::{Raw, session_request};
use crate::world::{PATIENCE, World, assert_same, finish, wait_for_bytes};

/// Connections that say nothing, and some that begin a handshake and stop.
fn silent(addr: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count)
        .map(|i| {
            let mut stream = TcpStream::connect(addr).unwrap();
            if i % 5 == 0 {
                // The head of a record with a ClientHello of 512 bytes, and a part of it.
                stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).unwrap();
            }
            stream
        })
        .collect()
}

#[test]
fn an_upload_goes_on_among_half_open_connections() {
    let world = World::new();
    let source = world.source(16 << 20);
    let visit = world.visit("", vec![world.owner_key()]).channels(8);
    let before = silent(world.addr, 250);
    let client = visit.connect().unwrap();
    let place = LocalPlace::Path(source.clone());
    let options = xdfs::TransferOptions {
        parameters: xdfs::TransferParameters {
            rate_bytes_per_s_max: Some(32 << 20),
            ..visit.transfer().parameters
        },
        ..visit.transfer()
    };
    let mut transfer = client.upload(&place, b"/copy", &options).unwrap();
    wait_for_bytes(&mut transfer, 1 << 20);
    let during = silent(world.addr, 250);
    finish(transfer).unwrap();
    assert_same(&source, &world.path("root/copy"));
    // A further session comes in, too.
    visit.upload(&source, "again").unwrap();
    drop((before, during));
}

/// Proofs that never become whole are held for a bounded number of strangers: the oldest have to
/// go, and who comes with a whole one comes in.
#[test]
fn what_strangers_have_the_server_hold_is_bounded() {
    // 4 MiB are held, of which each of these has nearly 15 KiB.
    const STRANGERS: usize = 400;
    let world = World::new();
    let source = world.source(1000);
    let proof = xdfs_proto::Frame::Auth(xdfs_proto::frame::AuthRequest {
        method: xdfs_security::Method::Password.number(),
        user: "alice".into(),
        body: vec![0; 16 << 10],
    });
    let mut bytes = Vec::new();
    proof.encode(&mut bytes);
    bytes.pop();
    let mut strangers: Vec<_> = (0..STRANGERS)
        .map(|_| {
            let mut raw = Raw::open(world.addr, &world.trust());
            let mut out = Vec::new();
            let purpose = Purpose::Session(session_request([1; 16]));
            let mut machine = Initiator::protected(purpose, false, &mut out);
            let step = raw.exchange(&mut machine, &mut out).unwrap();
            assert!(matches!(step, InitiatorStep::Prove(_)), "{step:?}");
            raw.send(&bytes);
            (raw, machine)
        })
        .collect();
    let visit = world.visit("", vec![world.owner_key()]);
    visit.upload(&source, "copy").unwrap();
    let (raw, machine) = &mut strangers[0];
    let fault = raw.exchange(machine, &mut Vec::new()).unwrap_err();
    assert_eq!(fault.code, Code::LimitExceeded, "{fault}");
    assert!(fault.cause.contains("complete"), "{fault}");
}

/// Floods a listener, and fails unless the log counts the connections that had to give way.
#[track_caller]
fn are_counted(addr: SocketAddr) {
    xdfs_testkit::warnings::keep();
    xdfs_crowd::set_warning_interval(Duration::from_millis(500));
    xdfs_sys::limit::raise_descriptor_limit();
    let mut held = Vec::new();
    let counted = xdfs_testkit::strangers::are_counted(addr, |count| {
        for _ in 0..count {
            held.push(TcpStream::connect(addr)?);
        }
        Ok(())
    });
    match counted {
        Ok(counted) => assert!(counted, "{:?}", xdfs_testkit::warnings::all()),
        Err(error) => skip::test(format_args!("this machine has few sockets: {error}")),
    }
}

#[test]
fn strangers_that_give_way_are_counted_in_the_log() {
    let world = World::new();
    are_counted(world.addr);
}

#[test]
fn strangers_that_give_way_at_a_data_node_are_counted_in_its_log() {
    let world = World::new();
    let folder = world.path("node");
    std::fs::create_dir(&folder).unwrap();
    let security = ServerSecurity::new(folder, "owner".into());
    let builder = ServerBuilder {
        root: world.path("root"),
        security: Some(security),
        ..ServerBuilder::default()
    };
    let settings = DataNodeSettings {
        listen: xdfs::gridftp_node_address("127.0.0.1:0").unwrap(),
        obeys: vec![world.fingerprint],
        ..DataNodeSettings::default()
    };
    let node = builder.bind_data_node(&settings).unwrap();
    let (addr, handle) = (node.addresses()[0], node.handle());
    let serving = std::thread::spawn(move || node.run());
    are_counted(addr);
    handle.shutdown(true);
    serving.join().unwrap().unwrap();
}

/// Something that isn't TLS gets an alert or nothing, and soon an end.
#[test]
fn noise_is_cut_off() {
    let world = World::new();
    for noise in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 600],
        &[22, 3, 1, 255, 255, 0, 0],
    ] {
        let mut stream = TcpStream::connect(world.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(noise).unwrap();
        let mut answer = Vec::new();
        // A reset is an end, too.
        let end = stream.read_to_end(&mut answer);
        let is_end = match &end {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(is_end, "{end:?}");
        assert!(answer.len() < 64, "{answer:?}");
    }
    let source = world.source(1000);
    let visit = world.visit("", vec![world.owner_key()]);
    visit.upload(&source, "copy").unwrap();
}

/// Runs `openssl s_client`; `None` where the program isn't there.
fn openssl(addr: SocketAddr, args: &[&str]) -> Option<(bool, String)> {
    let child = Command::new("openssl")
        .args(["s_client", "-connect", &addr.to_string()])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .inspect_err(|error| skip::test(format_args!("openssl can't be started: {error}")))
        .ok()?;
    // It ends with its input; the server ends connections that don't open within ten seconds.
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Some((output.status.success(), text))
}

#[test]
fn another_implementation_of_tls() {
    let world = World::new();
    let Some((is_ok, text)) = openssl(world.addr, &["-tls1_3", "-alpn", "xdfs/1"]) else {
        return;
    };
    assert!(is_ok, "{text}");
    assert!(text.contains("TLSv1.3"), "{text}");
    assert!(text.contains("ALPN protocol: xdfs/1"), "{text}");
    for args in [
        &["-tls1_2", "-alpn", "xdfs/1"][..],
        &["-tls1_3", "-alpn", "h2"],
    ] {
        let (is_ok, text) = openssl(world.addr, args).unwrap();
        assert!(!is_ok, "{args:?}: {text}");
        assert!(text.contains("alert"), "{args:?}: {text}");
    }
}
