//! TLS records processed by the kernel (kTLS), on Linux.
//!
//! A socket is [`attach`]ed once; then each direction may be handed over at a record boundary by
//! [`take_over`]. From there on, plain calls on the socket carry the content of application data
//! records, and [`send`] and [`receive`] handle the types of other records. Systems without kTLS
//! return [`io::ErrorKind::Unsupported`], and the caller continues without it.

#[cfg(target_os = "linux")]
pub(super) use linux::{attach, receive, send, take_over};
#[cfg(not(target_os = "linux"))]
pub(super) use nowhere::{attach, receive, send, take_over};

/// A direction of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelDirection {
    Sending,
    Receiving,
}

/// The result of one receive: content of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedContent {
    /// The record type; `None` at the end of the transport.
    pub(super) kind: Option<u8>,
    /// Number of bytes received into the caller's buffers.
    pub(super) len: usize,
    /// The end of a record's content was reached.
    pub(super) complete: bool,
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::RefCell;
    use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::errno::Errno;
    use nix::libc;
    use nix::sys::socket::sockopt::{TcpTlsRx, TcpTlsTx, TcpUlp, TlsCryptoInfo};
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, TlsGetRecordType, recvmsg, setsockopt};
    use rustls::ConnectionTrafficSecrets;
    use socket2::{MsgHdr, SockRef};
    use zeroize::Zeroize;

    use super::{KernelDirection, ReceivedContent};
    use xdfs_tls::record::{ALERT, APPLICATION_DATA, HANDSHAKE, damaged};

    /// Size of a control message header, and of a control message with a type.
    const CONTROL_BYTES: usize = size_of::<libc::cmsghdr>();
    const TYPED_BYTES: usize = CONTROL_BYTES + 1;

    /// Set once the kernel was found to lack TLS.
    static ABSENT: AtomicBool = AtomicBool::new(false);

    thread_local! {
        /// Buffer for the type of received records.
        static CONTROL: RefCell<Vec<u8>> = RefCell::new(nix::cmsg_space!(u8));
    }

    /// Prepares a connected socket. This has no effect until a direction is taken over.
    pub(in super::super) fn attach(socket: &SockRef<'_>) -> io::Result<()> {
        if !ABSENT.load(Ordering::Relaxed) {
            match setsockopt(&**socket, TcpUlp::default(), b"tls") {
                Err(Errno::ENOENT | Errno::ENOPROTOOPT | Errno::EPERM | Errno::EACCES) => {
                    // Other sockets would fail likewise.
                    ABSENT.store(true, Ordering::Relaxed);
                }
                done => return Ok(done?),
            }
        }
        Err(io::Error::new(
            ErrorKind::Unsupported,
            "this kernel has no TLS, or its module isn't loaded",
        ))
    }

    /// Hands one direction over to the kernel, starting at record `sequence`.
    pub(in super::super) fn take_over(
        socket: &SockRef<'_>,
        way: KernelDirection,
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
    ) -> io::Result<()> {
        let mut info = crypto_info(sequence, secrets)?;
        let result = match way {
            KernelDirection::Sending => setsockopt(&**socket, TcpTlsTx, &info),
            KernelDirection::Receiving => setsockopt(&**socket, TcpTlsRx, &info),
        };
        match &mut info {
            TlsCryptoInfo::Aes128Gcm(info) => info.key.zeroize(),
            TlsCryptoInfo::Aes256Gcm(info) => info.key.zeroize(),
            TlsCryptoInfo::Chacha20Poly1305(info) => info.key.zeroize(),
        }
        Ok(result?)
    }

    fn crypto_info(sequence: u64, secrets: &ConnectionTrafficSecrets) -> io::Result<TlsCryptoInfo> {
        let rec_seq = sequence.to_be_bytes();
        let info = |cipher_type| libc::tls_crypto_info {
            version: libc::TLS_1_3_VERSION,
            cipher_type,
        };
        // The kernel's two parts of what TLS 1.3 calls the IV.
        let parts = |iv: &[u8]| -> io::Result<([u8; 4], [u8; 8])> {
            let (salt, iv) = iv.split_first_chunk().ok_or(ErrorKind::InvalidInput)?;
            Ok((*salt, iv.try_into().map_err(io::Error::other)?))
        };
        Ok(match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => {
                let (salt, iv) = parts(iv.as_ref())?;
                TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 {
                    info: info(libc::TLS_CIPHER_AES_GCM_128),
                    iv,
                    key: key.as_ref().try_into().map_err(io::Error::other)?,
                    salt,
                    rec_seq,
                })
            }
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
                let (salt, iv) = parts(iv.as_ref())?;
                TlsCryptoInfo::Aes256Gcm(libc::tls12_crypto_info_aes_gcm_256 {
                    info: info(libc::TLS_CIPHER_AES_GCM_256),
                    iv,
                    key: key.as_ref().try_into().map_err(io::Error::other)?,
                    salt,
                    rec_seq,
                })
            }
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                TlsCryptoInfo::Chacha20Poly1305(libc::tls12_crypto_info_chacha20_poly1305 {
                    info: info(libc::TLS_CIPHER_CHACHA20_POLY1305),
                    iv: iv.as_ref().try_into().map_err(io::Error::other)?,
                    key: key.as_ref().try_into().map_err(io::Error::other)?,
                    salt: [],
                    rec_seq,
                })
            }
            _ => return Err(ErrorKind::Unsupported.into()),
        })
    }

    /// Sends a small record other than application data.
    #[expect(
        clippy::host_endian_bytes,
        reason = "control messages are structures in memory, as cmsg(3) describes them"
    )]
    pub(in super::super) fn send(socket: &SockRef<'_>, kind: u8, content: &[u8]) -> io::Result<()> {
        let mut control = [0; CONTROL_BYTES.next_multiple_of(8) + 8];
        let (length, rest) = control.split_at_mut(size_of::<usize>());
        length.copy_from_slice(&TYPED_BYTES.to_ne_bytes());
        rest[..4].copy_from_slice(&libc::SOL_TLS.to_ne_bytes());
        rest[4..8].copy_from_slice(&libc::TLS_SET_RECORD_TYPE.to_ne_bytes());
        rest[8] = kind;
        let bufs = [IoSlice::new(content)];
        let message = MsgHdr::new().with_buffers(&bufs).with_control(&control);
        socket.sendmsg(&message, libc::MSG_NOSIGNAL)?;
        Ok(())
    }

    /// Receives available content of records of one type.
    pub(in super::super) fn receive(
        socket: &SockRef<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<ReceivedContent> {
        CONTROL.with_borrow_mut(|control| {
            let (fd, flags) = (socket.as_raw_fd(), MsgFlags::empty());
            let message = loop {
                match recvmsg::<()>(fd, bufs, Some(control), flags) {
                    Err(Errno::EINTR) => {}
                    done => break done.map_err(open_error)?,
                }
            };
            let kind = message.cmsgs()?.find_map(|control| match control {
                ControlMessageOwned::TlsGetRecordType(kind) => Some(match kind {
                    TlsGetRecordType::ApplicationData => APPLICATION_DATA,
                    TlsGetRecordType::Alert => ALERT,
                    TlsGetRecordType::Handshake => HANDSHAKE,
                    // Not a message to expect here.
                    _ => 0,
                }),
                _ => None,
            });
            Ok(ReceivedContent {
                kind,
                len: message.bytes,
                complete: message.flags.contains(MsgFlags::MSG_EOR),
            })
        })
    }

    /// Translates the kernel's error about a record that it can't open.
    fn open_error(errno: Errno) -> io::Error {
        match errno {
            Errno::EBADMSG => damaged("a record was changed on the way, or is out of its order"),
            Errno::EINVAL | Errno::EMSGSIZE => {
                damaged("the peer sent something else than a TLS record")
            }
            errno => errno.into(),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod nowhere {
    use std::io::{self, ErrorKind, IoSliceMut};

    use rustls::ConnectionTrafficSecrets;
    use socket2::SockRef;

    use super::{KernelDirection, ReceivedContent};

    pub(in super::super) fn attach(_: &SockRef<'_>) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn take_over(
        _: &SockRef<'_>,
        _: KernelDirection,
        _: u64,
        _: &ConnectionTrafficSecrets,
    ) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn send(_: &SockRef<'_>, _: u8, _: &[u8]) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    pub(in super::super) fn receive(
        _: &SockRef<'_>,
        _: &mut [IoSliceMut<'_>],
    ) -> io::Result<ReceivedContent> {
        Err(ErrorKind::Unsupported.into())
    }
}
