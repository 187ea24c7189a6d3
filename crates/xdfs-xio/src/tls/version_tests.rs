//! TLS 1.2 is refused, even with configurations that take it.

use std::io::ErrorKind;
use std::sync::Arc;

use rustls::ServerConnection;
use rustls::version::TLS12;

use super::TlsStream;
use super::tests::{Numbers, PATIENCE, Pieces, Shared, configs, done, pipe};
use crate::Stream as _;

#[test]
fn an_older_version_is_refused() {
    let (server, client) = configs(&TLS12);
    let (up, down) = (Shared::default(), Shared::default());
    let below = Pieces {
        incoming: Arc::clone(&down),
        outgoing: Arc::clone(&up),
        numbers: Numbers(5),
        piece_max: 1 << 10,
        interrupts: false,
    };
    let name = "server.test".try_into().unwrap();
    let mut client = TlsStream::open(Box::new(below), client, name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    for _ in 0..PATIENCE {
        match client.finish_open() {
            Ok(true) => panic!("it is taken"),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return assert!(error.to_string().contains("older version"), "{error}");
            }
            waits => _ = done(waits),
        }
        let sent: Vec<u8> = pipe(&up).bytes.drain(..).collect();
        let mut rest = sent.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut answer = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut answer).unwrap();
        }
        pipe(&down).bytes.extend(answer);
    }
    panic!("nothing comes of it");
}
