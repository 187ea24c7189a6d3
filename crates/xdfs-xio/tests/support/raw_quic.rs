//! A QUIC client that does on its streams what it likes.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, StreamId,
};
use xdfs_xio::tls::Configs;

/// An open connection.
pub(crate) struct RawClient {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    pub(crate) connection: Connection,
}

impl RawClient {
    pub(crate) fn connect(to: SocketAddr, configs: &Configs, patience: Duration) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (tls, name) = configs.client.as_ref().unwrap();
        let crypto = QuicClientConfig::try_from((**tls).clone()).unwrap();
        let config = ClientConfig::new(Arc::new(crypto));
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let (handle, connection) = endpoint
            .connect(Instant::now(), config, to, &name.to_str())
            .unwrap();
        let mut client = Self {
            socket,
            endpoint,
            handle,
            connection,
        };
        let lost = client.run(patience, |connection| !connection.is_handshaking());
        assert!(lost.is_none(), "{lost:?}");
        client
    }

    /// Opens a stream; the peer hears of it with its first bytes.
    pub(crate) fn open(&mut self) -> StreamId {
        self.connection.streams().open(Dir::Bi).unwrap()
    }

    /// Exchanges datagrams until `is_over`, and returns why the connection ended, if it did before.
    pub(crate) fn run(
        &mut self,
        patience: Duration,
        is_over: impl Fn(&Connection) -> bool,
    ) -> Option<ConnectionError> {
        let end = Instant::now() + patience;
        let mut buffer = Vec::new();
        while !is_over(&self.connection) {
            assert!(Instant::now() < end, "nothing happened");
            buffer.clear();
            while let Some(transmit) = self
                .connection
                .poll_transmit(Instant::now(), 1, &mut buffer)
            {
                let bytes = &buffer[..transmit.size];
                self.socket.send_to(bytes, transmit.destination).unwrap();
                buffer.clear();
            }
            while let Some(event) = self.connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                    self.connection.handle_event(event);
                }
            }
            while let Some(event) = self.connection.poll() {
                if let Event::ConnectionLost { reason } = event {
                    return Some(reason);
                }
            }
            let mut bytes = [0; 2000];
            let wait = Duration::from_millis(5);
            self.socket.set_read_timeout(Some(wait)).unwrap();
            if let Ok((n, from)) = self.socket.recv_from(&mut bytes) {
                let (now, bytes) = (Instant::now(), bytes[..n].into());
                let event = self
                    .endpoint
                    .handle(now, from, None, None, bytes, &mut buffer);
                if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                    self.connection.handle_event(event);
                }
            }
            let now = Instant::now();
            if self.connection.poll_timeout().is_some_and(|at| at <= now) {
                self.connection.handle_timeout(now);
            }
        }
        None
    }
}
