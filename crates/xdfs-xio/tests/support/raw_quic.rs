//! A QUIC client that does on its streams what it likes, and sends as fast as it likes.

use std::any::Any;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use quinn_proto::congestion::{Controller, ControllerFactory};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, StreamId, TransportConfig,
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
        let (config, name) = client_config(configs);
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let (handle, connection) = endpoint.connect(Instant::now(), config, to, &name).unwrap();
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

    /// Sends all that may be sent, but every second datagram is lost on the way. Nothing is
    /// received. Returns how many got through.
    pub(crate) fn send_half(&mut self) -> usize {
        let mut buffer = Vec::new();
        let mut count = 0;
        let mut quiet = 0;
        while quiet < 20 {
            buffer.clear();
            let now = Instant::now();
            let Some(transmit) = self.connection.poll_transmit(now, 1, &mut buffer) else {
                // Its pace.
                thread::sleep(Duration::from_millis(1));
                self.connection.handle_timeout(Instant::now());
                quiet += 1;
                continue;
            };
            quiet = 0;
            count += 1;
            if count % 2 == 0 {
                let bytes = &buffer[..transmit.size];
                self.socket.send_to(bytes, transmit.destination).unwrap();
                // So that the peer's socket has room.
                if count % 64 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
        count / 2
    }

    /// Sends a packet that asks for an acknowledgement, from `socket` or the usual one. Nothing is
    /// received. Returns its size.
    pub(crate) fn ping_from(&mut self, socket: Option<&UdpSocket>) -> usize {
        let socket = socket.unwrap_or(&self.socket);
        let mut buffer = Vec::new();
        self.connection.ping();
        let mut total = 0;
        while let Some(transmit) = self
            .connection
            .poll_transmit(Instant::now(), 1, &mut buffer)
        {
            let bytes = &buffer[..transmit.size];
            total += socket.send_to(bytes, transmit.destination).unwrap();
            buffer.clear();
        }
        total
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

/// Begins this many handshakes from an address, whose answers are taken until the server is content
/// with the address, and continues none of them. Returns whether this machine has the address.
pub(crate) fn begin_handshakes(
    from: IpAddr,
    to: SocketAddr,
    configs: &Configs,
    count: usize,
) -> bool {
    let Ok(socket) = UdpSocket::bind((from, 0)) else {
        return false;
    };
    let (config, name) = client_config(configs);
    let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
    let mut begun = HashMap::new();
    let send = |connection: &mut Connection| {
        let mut buffer = Vec::new();
        let transmit = connection.poll_transmit(Instant::now(), 1, &mut buffer);
        socket
            .send_to(&buffer[..transmit.unwrap().size], to)
            .unwrap();
    };
    for _ in 0..count {
        let connected = endpoint.connect(Instant::now(), config.clone(), to, &name);
        let (handle, mut connection) = connected.unwrap();
        send(&mut connection);
        begun.insert(handle, connection);
        // So that no socket overflows, but an answer may be lost.
        let mut wait = Duration::from_millis(100);
        loop {
            let mut bytes = [0; 2000];
            socket.set_read_timeout(Some(wait)).unwrap();
            let Ok((n, from)) = socket.recv_from(&mut bytes) else {
                break;
            };
            wait = Duration::from_micros(1);
            // RFC 9000, section 17.2.5: the type of a Retry packet.
            if bytes[0] & 0xf0 == 0xf0 {
                let (now, bytes) = (Instant::now(), bytes[..n].into());
                let event = endpoint.handle(now, from, None, None, bytes, &mut Vec::new());
                if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event {
                    let connection = begun.get_mut(&handle).unwrap();
                    connection.handle_event(event);
                    send(connection);
                }
            }
        }
    }
    true
}

fn client_config(configs: &Configs) -> (ClientConfig, String) {
    let (tls, name) = configs.client.as_ref().unwrap();
    let crypto = QuicClientConfig::try_from((**tls).clone()).unwrap();
    let mut transport = TransportConfig::default();
    transport.send_window(WINDOW);
    transport.congestion_controller_factory(Arc::new(Reckless));
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    (config, name.to_str().into_owned())
}

/// Bytes that may be on their way.
const WINDOW: u64 = 64 << 20;

/// No congestion control.
#[derive(Clone)]
struct Reckless;

impl ControllerFactory for Reckless {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

impl Controller for Reckless {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        WINDOW
    }

    fn initial_window(&self) -> u64 {
        WINDOW
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
