//! The kernel's measurements of a TCP connection, and options that no safe library sets.
//!
//! Only Linux has them in this form; elsewhere there are none, and callers do without.

use std::time::Duration;

/// The kernel's measurements of a TCP connection, since it began unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time; zero before the first sample.
    pub round_trip: Duration,
    /// Mean deviation of the round-trip time; zero before the first sample.
    pub round_trip_deviation: Duration,
    /// Shortest round-trip time of the last minutes; zero before the first sample.
    pub round_trip_min: Duration,
    /// Bytes of payload sent, including those sent again.
    pub sent_bytes: u64,
    /// Bytes of payload sent again.
    pub resent_bytes: u64,
    /// Bytes of payload that the peer has acknowledged.
    pub acknowledged_bytes: u64,
    /// Bytes in the send buffer that have not been sent.
    pub unsent_bytes: u64,
    /// Latest estimate of the delivery rate, in bytes per second.
    pub delivery_rate: u64,
    /// Largest packet that the path is known to take, in bytes.
    pub path_mtu: u32,
    /// Time during which data was in flight.
    pub busy: Duration,
    /// Time during which the peer's receive window was the limit.
    pub window_limited: Duration,
    /// Time during which the send buffer was the limit.
    pub buffer_limited: Duration,
}

/// The measurements of a connected socket.
///
/// # Errors
/// The socket isn't a TCP socket; [`std::io::ErrorKind::Unsupported`] if the system has no such
/// call, or has an older one with fewer measurements.
#[cfg(target_os = "linux")]
pub fn info(socket: &impl std::os::fd::AsFd) -> std::io::Result<TcpInfo> {
    use std::os::fd::AsRawFd as _;

    let mut bytes = [0_u8; LENGTH];
    let mut length = LENGTH as libc::socklen_t;
    let socket = socket.as_fd();
    // SAFETY: `bytes` has `length` bytes that the call may overwrite, and both live longer than it;
    // the descriptor is open while `socket` is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error());
    }
    if (length as usize) < LENGTH {
        return Err(std::io::ErrorKind::Unsupported.into());
    }
    Ok(parse(&bytes))
}

/// As on Linux: there is no such call.
///
/// # Errors
/// Always [`std::io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn info<S>(_: &S) -> std::io::Result<TcpInfo> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Sets the rate in bytes per second at which the kernel sends on a connection at most
/// (`SO_MAX_PACING_RATE`); `None` for no limit.
///
/// # Errors
/// Those of the system call; [`std::io::ErrorKind::Unsupported`] if the system has no such option.
#[cfg(target_os = "linux")]
pub fn set_pace(socket: &impl std::os::fd::AsFd, bytes_per_s: Option<u64>) -> std::io::Result<()> {
    // Older kernels take 32 bits, where the largest number is no limit too.
    let rate = bytes_per_s.map_or(u32::MAX, |rate| u32::try_from(rate).unwrap_or(u32::MAX));
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)
}

/// As on Linux: there is no such option.
///
/// # Errors
/// Always [`std::io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn set_pace<S>(_: &S, _: Option<u64>) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Has a connection sent by the congestion control that measures the path and paces (`bbr`),
/// instead of taking each loss and each delay for a queue that is full.
///
/// # Errors
/// The system lacks it or doesn't allow it; [`std::io::ErrorKind::Unsupported`] if it has no such
/// option.
#[cfg(target_os = "linux")]
pub fn prefer_paced(socket: &impl std::os::fd::AsFd) -> std::io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, *b"bbr")
}

/// As on Linux: there is no such option.
///
/// # Errors
/// Always [`std::io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn prefer_paced<S>(_: &S) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Lets peers send data in the packet that opens a connection (TCP Fast Open, RFC 7413), at most
/// `pending` at a time whose address is not confirmed yet, on a listening socket.
///
/// # Errors
/// Those of the system call; [`std::io::ErrorKind::Unsupported`] if the system has no such option.
#[cfg(target_os = "linux")]
pub fn accept_fast_open(socket: &impl std::os::fd::AsFd, pending: u32) -> std::io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, pending)
}

/// As on Linux: there is no such option.
///
/// # Errors
/// Always [`std::io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn accept_fast_open<S>(_: &S, _: u32) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Sets an option to a value: a number, or the bytes of a name.
#[cfg(target_os = "linux")]
fn set<T: Copy>(
    socket: &impl std::os::fd::AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> std::io::Result<()> {
    use std::os::fd::AsRawFd as _;

    let socket = socket.as_fd();
    // SAFETY: `value` has as many bytes as the call is told to read, and lives longer than it; the
    // descriptor is open while `socket` is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Bytes of `struct tcp_info` that are needed (linux/tcp.h). Fields are only ever appended to it.
#[cfg(target_os = "linux")]
const LENGTH: usize = 216;

#[cfg(target_os = "linux")]
#[expect(
    clippy::host_endian_bytes,
    reason = "the kernel fills the structure in the byte order of the machine"
)]
fn parse(bytes: &[u8; LENGTH]) -> TcpInfo {
    let small_at = |at: usize| {
        let mut field = [0; 4];
        field.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(field)
    };
    let u32_at = |at: usize| u64::from(small_at(at));
    let u64_at = |at: usize| {
        let mut field = [0; 8];
        field.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(field)
    };
    // The kernel has no sample yet if the shortest time is the largest number.
    let shortest = Some(u32_at(148)).filter(|time| *time != u64::from(u32::MAX));
    TcpInfo {
        round_trip: Duration::from_micros(if shortest.is_some() { u32_at(68) } else { 0 }),
        round_trip_deviation: Duration::from_micros(if shortest.is_some() {
            u32_at(72)
        } else {
            0
        }),
        round_trip_min: Duration::from_micros(shortest.unwrap_or(0)),
        sent_bytes: u64_at(200),
        resent_bytes: u64_at(208),
        acknowledged_bytes: u64_at(120),
        unsent_bytes: u32_at(144),
        delivery_rate: u64_at(160),
        path_mtu: small_at(60),
        busy: Duration::from_micros(u64_at(168)),
        window_limited: Duration::from_micros(u64_at(176)),
        buffer_limited: Duration::from_micros(u64_at(184)),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_connection_is_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let sent = vec![7; 100_000];
        let writer = std::thread::spawn(move || {
            client.write_all(&sent).unwrap();
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap();
            client
        });
        let mut received = vec![0; 100_000];
        server.read_exact(&mut received).unwrap();
        server.write_all(&[1]).unwrap();
        let client = writer.join().unwrap();
        let info = info(&client).unwrap();
        assert!(info.sent_bytes >= 100_000, "{info:?}");
        // The byte that the kernel counts for the connection's own beginning may be among them.
        assert!(info.acknowledged_bytes >= 100_000, "{info:?}");
        assert_eq!(info.unsent_bytes, 0, "{info:?}");
        assert!(info.round_trip > Duration::ZERO, "{info:?}");
        assert!(
            info.round_trip_min > Duration::ZERO && info.round_trip_min < Duration::from_secs(60),
            "{info:?}"
        );
        assert!(info.resent_bytes <= info.sent_bytes, "{info:?}");
        assert!((576..=65_536).contains(&info.path_mtu), "{info:?}");
    }

    #[test]
    fn other_sockets_have_no_measurements() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(info(&socket).is_err());
    }

    #[test]
    #[expect(clippy::host_endian_bytes, reason = "the kernel's byte order")]
    fn a_connection_without_a_sample_has_no_round_trip() {
        let mut bytes = [0; LENGTH];
        bytes[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[68..72].copy_from_slice(&250_000_u32.to_ne_bytes());
        let info = parse(&bytes);
        assert_eq!(info.round_trip, Duration::ZERO);
        assert_eq!(info.round_trip_min, Duration::ZERO);
    }
}
