//! A peer that speaks the protocol by hand over a blocking socket, and may break it anywhere.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use xdfs::{DigestKind, DigestValue, Fault, Limits};
use xdfs_proto::digest::{BlockHasher, FragmentMap};
use xdfs_proto::frame::{
    BLOCK_HEADER_BYTES, BlockHeader, Eofr, Exception, FRAME_HEADER_BYTES, Frame, FrameHeader, Hole,
    JoinRequest, Offer, Scope, SessionAccept, SessionRequest, Start, TimeAccount,
};
use xdfs_proto::opening::{Answer, Hello, Welcome};
use xdfs_proto::{ByteRange, ChannelIndex, FileId, SessionId, SessionSecret, SourceTag};

/// Longest wait for the other side.
const PATIENCE: Duration = Duration::from_secs(60);
/// The block size that [`session_request`] asks for.
pub(crate) const BLOCK: u32 = 4096;

/// What came next.
#[derive(Debug)]
pub(crate) enum Heard {
    Frame(Frame),
    Block,
    End,
}

#[derive(Debug)]
pub(crate) struct Peer {
    stream: TcpStream,
    limits: Limits,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            limits: Limits::default(),
        }
    }

    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::new(TcpStream::connect(addr).unwrap())
    }

    /// Connects and passes the greeting.
    pub(crate) fn greeted(addr: SocketAddr) -> Self {
        let mut peer = Self::connect(addr);
        peer.hello(&Hello::default());
        assert!(matches!(peer.answer(), Answer::Welcome(_)));
        peer
    }

    /// Connects and registers a session.
    #[track_caller]
    pub(crate) fn in_session(addr: SocketAddr, channels: u32) -> (Self, SessionId, SessionAccept) {
        let mut peer = Self::greeted(addr);
        let request = session_request(channels);
        peer.send(&Frame::Session(request.clone()));
        match peer.frame() {
            Frame::SessionOk(accept) => (peer, request.id, accept),
            other => panic!("{other:?}"),
        }
    }

    /// Registers a session, offers a file, and hears that it is accepted.
    #[track_caller]
    pub(crate) fn offering(addr: SocketAddr, path: &str, length: Option<u64>) -> Self {
        let (mut peer, ..) = Self::in_session(addr, 1);
        peer.send(&Frame::Xftsmu(offer(path, length)));
        match peer.frame() {
            Frame::Accept(accept) => assert_eq!(accept.block_size, BLOCK),
            other => panic!("{other:?}"),
        }
        peer
    }

    /// Sends bytes. The other side may have closed: then it is what it said that counts.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends bytes, and says whether the other side still takes them.
    pub(crate) fn try_raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends bytes one by one, until all are sent or the other side closes.
    pub(crate) fn drip(&mut self, bytes: &[u8], pause: Duration) {
        for byte in bytes {
            thread::sleep(pause);
            if self.stream.write_all(&[*byte]).is_err() {
                return;
            }
        }
    }

    pub(crate) fn hello(&mut self, hello: &Hello) {
        let mut bytes = Vec::new();
        hello.encode(&mut bytes);
        self.raw(&bytes);
    }

    pub(crate) fn welcome(&mut self) {
        let mut bytes = Vec::new();
        Answer::Welcome(Welcome {
            version: 1,
            features: Vec::new(),
        })
        .encode(&mut bytes);
        self.raw(&bytes);
    }

    pub(crate) fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.raw(&bytes);
    }

    /// Sends a block of file 1 with the right check value.
    pub(crate) fn block(&mut self, offset: u64, payload: &[u8]) {
        self.block_of(FileId(1), offset, payload);
    }

    /// Sends a block of a file with the right check value.
    pub(crate) fn block_of(&mut self, file: FileId, offset: u64, payload: &[u8]) {
        let mut hasher = BlockHasher::new(DigestKind::None, true, offset);
        hasher.update(payload);
        let header = BlockHeader {
            file,
            check: hasher.finish(file).0,
            ..block_header(offset, payload)
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(payload);
        self.raw(&bytes);
    }

    fn exact<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map(|()| bytes)
    }

    /// Reads a HELLO (as a server does).
    pub(crate) fn read_hello(&mut self) {
        let mut bytes = Vec::new();
        while Hello::decode(&bytes).unwrap().is_none() {
            bytes.extend(self.exact::<1>().unwrap());
        }
    }

    /// Reads the answer to HELLO.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        let mut bytes = Vec::new();
        loop {
            if let Some((answer, _)) = Answer::decode(&bytes).unwrap() {
                return answer;
            }
            bytes.extend(self.exact::<1>().expect("there was no answer"));
        }
    }

    /// The fault of a refusal, after which the other side closes.
    #[track_caller]
    pub(crate) fn refusal(&mut self) -> Fault {
        match self.answer() {
            Answer::Refused(fault) => {
                assert!(matches!(self.next(), Heard::End));
                fault
            }
            Answer::Welcome(_) => panic!("it was welcome"),
        }
    }

    /// Reads whatever comes until the other side closes.
    pub(crate) fn hold(&mut self) {
        let mut bytes = [0; 4096];
        while matches!(self.stream.read(&mut bytes), Ok(n) if n > 0) {}
    }

    /// What comes next; the payload of a block is dropped. An end in the middle is an end.
    pub(crate) fn next(&mut self) -> Heard {
        match self.read_next() {
            Ok(heard) => heard,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("nothing came")
            }
            Err(_) => Heard::End,
        }
    }

    fn read_next(&mut self) -> io::Result<Heard> {
        let header = FrameHeader::decode(self.exact::<FRAME_HEADER_BYTES>()?, &self.limits);
        let header = header.unwrap();
        if header.is_block() {
            let rest = self.exact::<{ BLOCK_HEADER_BYTES - FRAME_HEADER_BYTES }>()?;
            let block = BlockHeader::decode(header, rest).unwrap();
            let mut payload = vec![0; block.length as usize];
            self.stream.read_exact(&mut payload)?;
            return Ok(Heard::Block);
        }
        let mut body = vec![0; header.length as usize];
        self.stream.read_exact(&mut body)?;
        let frame = Frame::decode(header, &body, &self.limits).unwrap();
        Ok(Heard::Frame(frame))
    }

    /// The next frame that says something: neither NOOP, ACK, DURABLE nor a block.
    #[track_caller]
    pub(crate) fn frame(&mut self) -> Frame {
        loop {
            match self.next() {
                Heard::Frame(Frame::Noop | Frame::Ack(_) | Frame::Durable(_)) => {}
                Heard::Block => {}
                Heard::Frame(frame) => return frame,
                Heard::End => panic!("the other side closed without a word"),
            }
        }
    }

    /// The exception that comes next, and its scope.
    #[track_caller]
    pub(crate) fn exception(&mut self) -> (Scope, Fault) {
        match self.frame() {
            Frame::Exception(Exception { scope, fault }) => (scope, fault),
            other => panic!("{other:?}"),
        }
    }

    /// The exception that ends the session, after which the other side closes.
    #[track_caller]
    pub(crate) fn session_exception(&mut self) -> Fault {
        let (scope, fault) = self.exception();
        assert_eq!(scope, Scope::Session, "{fault}");
        self.end();
        fault
    }

    /// The exception that refuses the channel, after which the other side closes.
    #[track_caller]
    pub(crate) fn channel_exception(&mut self) -> Fault {
        let (scope, fault) = self.exception();
        assert_eq!(scope, Scope::Channel, "{fault}");
        self.end();
        fault
    }

    /// Fails unless the other side closes now.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        loop {
            match self.next() {
                Heard::End => return,
                Heard::Frame(Frame::Noop | Frame::Ack(_) | Frame::Durable(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A listener for a client under test: its first connection.
pub(crate) fn accept(listener: &TcpListener) -> Peer {
    listener.set_nonblocking(true).unwrap();
    let until = Instant::now() + PATIENCE;
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                assert!(Instant::now() < until, "nobody connects");
                thread::sleep(Duration::from_millis(1));
            }
            Err(e) => panic!("{e}"),
        }
    };
    stream.set_nonblocking(false).unwrap();
    Peer::new(stream)
}

pub(crate) fn session_request(channels: u32) -> SessionRequest {
    // Sessions of one server have to differ, and nothing else.
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    SessionRequest {
        id: SessionId(id),
        channels,
        block_size: BLOCK,
        window: 0,
        start: Start::Elastic,
        user: String::new(),
    }
}

pub(crate) fn session_ok(channels: u32, block_size: u32) -> Frame {
    Frame::SessionOk(SessionAccept {
        secret: SessionSecret([7; 16]),
        channels,
        block_size,
        window: 0,
    })
}

pub(crate) fn join(id: SessionId, secret: SessionSecret, channel: u32) -> Frame {
    Frame::Join(JoinRequest {
        id,
        secret,
        channel: ChannelIndex(channel),
    })
}

pub(crate) fn offer(path: &str, length: Option<u64>) -> Offer {
    Offer {
        file: FileId(1),
        path: path.into(),
        name: Vec::new(),
        length,
        tag: SourceTag([3; 16]),
        mode: None,
        mtime_ns: None,
        digest: DigestKind::Crc64Nvme,
        overwrite: false,
        resume: xdfs_proto::frame::Resume::Trust,
        dry_run: false,
        pack: false,
        sparse: false,
        relaxed: false,
        last: None,
    }
}

pub(crate) fn block_header(offset: u64, payload: &[u8]) -> BlockHeader {
    let mut hasher = BlockHasher::new(DigestKind::None, true, offset);
    hasher.update(payload);
    BlockHeader {
        file: FileId(1),
        check: hasher.finish(FileId(1)).0,
        clear: false,
        offset,
        length: u32::try_from(payload.len()).unwrap(),
    }
}

/// The digest of a whole file in one piece.
pub(crate) fn digest(bytes: &[u8]) -> DigestValue {
    let mut hasher = BlockHasher::new(DigestKind::Crc64Nvme, false, 0);
    hasher.update(bytes);
    let mut map = FragmentMap::new(DigestKind::Crc64Nvme);
    assert!(bytes.is_empty() || map.insert(hasher.finish(FileId(1)).1));
    map.digest(bytes.len() as u64).unwrap()
}

pub(crate) fn eofr(length: u64, digest: DigestValue) -> Frame {
    Frame::Eofr(Eofr {
        file: FileId(1),
        length,
        digest,
        time: TimeAccount::default(),
    })
}

pub(crate) fn hole(start: u64, end: u64) -> Frame {
    Frame::Hole(Hole {
        file: FileId(1),
        range: ByteRange { start, end },
    })
}
