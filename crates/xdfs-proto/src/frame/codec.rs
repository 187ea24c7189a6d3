//! The bodies of the frames that aren't BLOCKs: one arm to write and one to read each kind.
//!
//! Every message has exactly one encoding: fields that a flag declares absent are zero, and the
//! decoder refuses what the encoder would not write. Nothing is optional by position.

use super::{
    Accept, AuthRequest, BLOCK_CLEAR, BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, Frame, FrameHeader,
    JoinRequest, Level, Offer, Request, Resume, Scope, SessionAccept, SessionRequest, SourceTag,
    Start, calls, kind,
};
use crate::digest::{DigestKind, DigestValue, Fragment, FragmentState, SUBTREE_BYTES_MIN};
use crate::id::{CALL_SLOTS, CallId, ChannelIndex, FileId, SessionId, SessionSecret};
use crate::limits::Limits;
use crate::pack::{Failures, PACK_BYTES_MAX, Wish};
use crate::path::Call;
use crate::range::ByteRange;
use crate::wire::{DecodeError, FAULT_TEXT_BYTES_MAX, Reader, Writer};

/// SESSION: the start is strict.
const SESSION_STRICT: u8 = 1 << 0;
/// XFTSMU, OFFER: replace a target that exists.
const OFFER_OVERWRITE: u8 = 1 << 0;
/// XFTSMU, OFFER: write nothing.
const OFFER_DRY_RUN: u8 = 1 << 2;
/// XFTSMU, OFFER: the length is known.
const OFFER_LENGTH: u8 = 1 << 3;
/// XFTSMU, OFFER: the source has permission bits.
const OFFER_MODE: u8 = 1 << 4;
/// XFTSMU, OFFER: the source has a modification time.
const OFFER_MTIME: u8 = 1 << 5;
/// XFTSMU: the content is a pack.
const OFFER_PACK: u8 = 1 << 6;
/// XFTSMU, OFFER: the source is sparse.
const OFFER_SPARSE: u8 = 1 << 7;
/// XFTSMU of a pack: its files may get their names before they are durable.
const OFFER_RELAXED: u8 = 1 << 7;
/// XFTSM: the length is given.
const REQUEST_LENGTH: u8 = 1 << 0;
/// XFTSM: a pack is asked for.
const REQUEST_PACK: u8 = 1 << 1;
/// PUBLISHED: entries of the pack failed.
const PUBLISHED_FAILURES: u8 = 1 << 0;
/// ANSWER: no part follows.
const ANSWER_LAST: u8 = 1 << 0;
/// TAKEN: nothing more is wanted.
const TAKEN_STOP: u8 = 1 << 0;

/// Longest name of a user, in bytes.
pub(crate) const USER_BYTES_MAX: usize = 255;
/// Longest step of a proof, in bytes: a certificate chain isn't part of it, a token is.
pub(crate) const PROOF_BYTES_MAX: usize = 16 << 10;
/// Longest path in an ACCEPT, which is only shown, in bytes.
const ACCEPT_PATH_BYTES_MAX: usize = 1024;
/// Largest share in thousandths.
const PERMILLE_MAX: u16 = 1000;

/// The flag bits that a kind defines; `None` if there is no such kind.
pub(super) fn flags_defined(kind: u8) -> Option<u8> {
    match kind {
        kind::SESSION => Some(SESSION_STRICT),
        kind::XFTSMU | kind::OFFER => Some(
            OFFER_OVERWRITE
                | OFFER_DRY_RUN
                | OFFER_LENGTH
                | OFFER_MODE
                | OFFER_MTIME
                | OFFER_PACK
                | OFFER_SPARSE,
        ),
        kind::XFTSM => Some(REQUEST_LENGTH | REQUEST_PACK),
        kind::PUBLISHED => Some(PUBLISHED_FAILURES),
        kind::ANSWER => Some(ANSWER_LAST),
        kind::TAKEN => Some(TAKEN_STOP),
        kind::BLOCK => Some(BLOCK_CLEAR),
        kind::SESSION_OK..=kind::PROTECT
        | kind::EOFT..=kind::CANCEL
        | kind::HOLE
        | kind::EXCEPTION => Some(0),
        _ => None,
    }
}

/// `flag` where `set`, else nothing.
pub(super) fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

/// The value of a field that `flags` may declare absent; it is zero then.
pub(super) fn present<T: Default + PartialEq>(
    flags: u8,
    flag: u8,
    value: T,
    field: &'static str,
) -> Result<Option<T>, DecodeError> {
    if flags & flag != 0 {
        Ok(Some(value))
    } else if value == T::default() {
        Ok(None)
    } else {
        Err(DecodeError::Invalid(field))
    }
}

impl Frame {
    /// Appends the frame to `out`.
    ///
    /// Texts and paths of faults, and the path of an ACCEPT, are cut at 1024 bytes. The paths of
    /// XFTSMU, OFFER and XFTSM must be checked against the limits before: one of more than 65,535
    /// bytes becomes one that every peer refuses. Durable ranges whose digest is of another kind
    /// than that of the first are left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, flags) = self.kind_and_flags();
        let start = out.len();
        let mut w = Writer::new(out);
        w.raw(&[kind, flags, 0, 0, 0, 0, 0, 0]);
        let body = w.position();
        self.encode_body(&mut w);
        w.patch_length(start + 4, body);
    }

    fn kind_and_flags(&self) -> (u8, u8) {
        match self {
            Self::Session(s) => (
                kind::SESSION,
                flag(s.start == Start::Strict, SESSION_STRICT),
            ),
            Self::SessionOk(_) => (kind::SESSION_OK, 0),
            Self::Join(_) => (kind::JOIN, 0),
            Self::JoinOk => (kind::JOIN_OK, 0),
            Self::Auth(_) => (kind::AUTH, 0),
            Self::Challenge(_) => (kind::CHALLENGE, 0),
            Self::Proof(_) => (kind::PROOF, 0),
            Self::AuthOk { .. } => (kind::AUTH_OK, 0),
            Self::Protect(_) => (kind::PROTECT, 0),
            Self::Eoft => (kind::EOFT, 0),
            Self::Leave => (kind::LEAVE, 0),
            Self::Eofr { .. } => (kind::EOFR, 0),
            Self::Xftsmu(offer) => (kind::XFTSMU, offer.flags()),
            Self::Xftsm(r) => (
                kind::XFTSM,
                flag(r.length.is_some(), REQUEST_LENGTH) | flag(r.pack.is_some(), REQUEST_PACK),
            ),
            Self::Offer(offer) => (kind::OFFER, offer.flags()),
            Self::Accept(_) => (kind::ACCEPT, 0),
            Self::Hole { .. } => (kind::HOLE, 0),
            Self::Ack { .. } => (kind::ACK, 0),
            Self::Repeat { .. } => (kind::REPEAT, 0),
            Self::Durable { .. } => (kind::DURABLE, 0),
            Self::Published { failures, .. } => (
                kind::PUBLISHED,
                flag(!failures.is_empty(), PUBLISHED_FAILURES),
            ),
            Self::Cancel { .. } => (kind::CANCEL, 0),
            Self::Noop => (kind::NOOP, 0),
            Self::Conm => (kind::CONM, 0),
            Self::Xpathm { .. } | Self::UnknownCall { .. } => (kind::XPATHM, 0),
            Self::Answer { last, .. } => (kind::ANSWER, flag(*last, ANSWER_LAST)),
            Self::Taken { stop, .. } => (kind::TAKEN, flag(*stop, TAKEN_STOP)),
            Self::XdfsM => (kind::XDFSM, 0),
            Self::Zxdfs => (kind::ZXDFS, 0),
            Self::Exception { .. } => (kind::EXCEPTION, 0),
        }
    }

    fn encode_body(&self, w: &mut Writer<'_>) {
        match self {
            Self::Session(s) => {
                w.raw(&s.id.0);
                w.u32(s.channels);
                w.u32(s.block_size);
                w.u32(s.window);
                w.text(&s.user, USER_BYTES_MAX);
            }
            Self::SessionOk(s) => {
                w.raw(&s.secret.0);
                w.u32(s.channels);
                w.u32(s.block_size);
                w.u32(s.window);
            }
            Self::Join(j) => {
                w.raw(&j.id.0);
                w.raw(&j.secret.0);
                w.u32(j.channel.0);
            }
            Self::Auth(a) => {
                w.u8(a.method);
                w.text(&a.user, USER_BYTES_MAX);
                w.bytes(&a.body, PROOF_BYTES_MAX);
            }
            Self::Challenge(body) | Self::Proof(body) => w.bytes(body, PROOF_BYTES_MAX),
            Self::AuthOk { user } => w.text(user, USER_BYTES_MAX),
            Self::Protect(level) => w.u8(match level {
                Level::Private => 0,
                Level::Clear => 1,
            }),
            Self::JoinOk
            | Self::Eoft
            | Self::Leave
            | Self::Noop
            | Self::Conm
            | Self::XdfsM
            | Self::Zxdfs => {}
            Self::Eofr {
                file,
                length,
                digest,
                store_wait_permille,
            } => encode_end(w, *file, *length, digest, *store_wait_permille),
            Self::Published {
                file,
                length,
                digest,
                store_wait_permille,
                failures,
            } => {
                encode_end(w, *file, *length, digest, *store_wait_permille);
                if !failures.is_empty() {
                    failures.encode(w);
                }
            }
            Self::Xftsmu(offer) | Self::Offer(offer) => offer.encode_body(w),
            Self::Xftsm(r) => {
                w.u32(r.file.0);
                w.u64(r.offset);
                w.u64(r.length.unwrap_or(0));
                w.u8(r.digest.number());
                w.path(&r.path);
                if let Some(wish) = &r.pack {
                    wish.encode(w);
                }
            }
            Self::Accept(accept) => accept.encode_body(w),
            Self::Xpathm { id, call } => {
                encode_call_id(w, *id);
                call.encode_fields(w);
            }
            Self::UnknownCall {
                id,
                operation,
                rest,
            } => {
                encode_call_id(w, *id);
                w.u8(*operation);
                w.raw(rest);
            }
            Self::Answer {
                id, part, answer, ..
            } => {
                encode_call_id(w, *id);
                w.u32(*part);
                calls::encode_content(w, answer);
            }
            Self::Taken { id, parts, .. } => {
                encode_call_id(w, *id);
                w.u32(*parts);
            }
            Self::Hole { file, range } | Self::Repeat { file, range } => {
                w.u32(file.0);
                encode_range(w, range);
            }
            Self::Ack { data_frames } => w.u64(*data_frames),
            Self::Durable { file, bytes } => {
                w.u32(file.0);
                w.u64(*bytes);
            }
            Self::Cancel { file } => w.u32(file.0),
            Self::Exception { scope, fault } => {
                let (number, file) = match scope {
                    Scope::Channel => (0, 0),
                    Scope::File(file) => (1, file.0),
                    Scope::Session => (2, 0),
                };
                w.u8(number);
                w.u32(file);
                w.fault(fault);
            }
        }
    }

    /// Decodes the body of a frame that isn't a BLOCK.
    ///
    /// # Errors
    /// See [`DecodeError`]. Never allocates more than a small multiple of `body.len()`.
    pub fn decode(header: FrameHeader, body: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        let frame = Self::decode_body(header, &mut r, limits)?;
        r.finish()?;
        Ok(frame)
    }

    fn decode_body(
        header: FrameHeader,
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let flags = header.flags;
        Ok(match header.kind {
            kind::SESSION => Self::Session(SessionRequest {
                id: SessionId(r.array("session")?),
                channels: channels(r)?,
                block_size: match r.u32("block size")? {
                    size @ (0 | BLOCK_SIZE_MIN..) => size,
                    _ => return Err(DecodeError::Invalid("block size")),
                },
                window: r.u32("window")?,
                start: if flags & SESSION_STRICT != 0 {
                    Start::Strict
                } else {
                    Start::Elastic
                },
                user: r.text(USER_BYTES_MAX, "user")?,
            }),
            kind::SESSION_OK => Self::SessionOk(SessionAccept {
                secret: SessionSecret(r.array("secret")?),
                channels: channels(r)?,
                block_size: grid(r)?,
                window: r.u32("window")?,
            }),
            kind::JOIN => Self::Join(JoinRequest {
                id: SessionId(r.array("session")?),
                secret: SessionSecret(r.array("secret")?),
                channel: ChannelIndex(r.u32("channel")?),
            }),
            kind::JOIN_OK => Self::JoinOk,
            kind::AUTH => Self::Auth(AuthRequest {
                method: r.u8("method")?,
                user: r.text(USER_BYTES_MAX, "user")?,
                body: r.bytes(PROOF_BYTES_MAX, "proof")?.to_vec(),
            }),
            kind::CHALLENGE => Self::Challenge(r.bytes(PROOF_BYTES_MAX, "challenge")?.to_vec()),
            kind::PROOF => Self::Proof(r.bytes(PROOF_BYTES_MAX, "proof")?.to_vec()),
            kind::AUTH_OK => Self::AuthOk {
                user: r.text(USER_BYTES_MAX, "user")?,
            },
            kind::PROTECT => Self::Protect(match r.u8("level")? {
                0 => Level::Private,
                1 => Level::Clear,
                _ => return Err(DecodeError::Invalid("level")),
            }),
            kind::LEAVE => Self::Leave,
            kind::EOFT => Self::Eoft,
            kind::EOFR => {
                let (file, length, store_wait_permille, digest) = decode_end(r)?;
                Self::Eofr {
                    file,
                    length,
                    digest,
                    store_wait_permille,
                }
            }
            kind::XFTSMU => Self::Xftsmu(Offer::decode_body(flags, r, limits)?),
            kind::XFTSM => {
                let mut request = Request {
                    file: FileId(r.u32("file")?),
                    offset: r.u64("offset")?,
                    length: present(flags, REQUEST_LENGTH, r.u64("length")?, "length")?,
                    digest: decode_digest_kind(r)?,
                    path: r.path(limits.path_bytes_max, "path")?,
                    pack: None,
                };
                if flags & REQUEST_PACK != 0 {
                    if request.offset != 0 || request.length.is_some() {
                        return Err(DecodeError::Invalid("range of a pack"));
                    }
                    request.pack = Some(Wish::decode(r, limits)?);
                }
                Self::Xftsm(request)
            }
            kind::XPATHM => {
                let id = decode_call_id(r)?;
                match calls::decode_unknown(r)? {
                    Some((operation, rest)) => Self::UnknownCall {
                        id,
                        operation,
                        rest,
                    },
                    None => Self::Xpathm {
                        id,
                        call: Call::decode_fields(r, limits)?,
                    },
                }
            }
            kind::ANSWER => {
                let (id, part) = (decode_call_id(r)?, r.u32("part of an answer")?);
                let (last, answer) = (flags & ANSWER_LAST != 0, calls::decode_content(r, limits)?);
                calls::check_part(part, last, &answer)?;
                Self::Answer {
                    id,
                    part,
                    last,
                    answer,
                }
            }
            kind::TAKEN => Self::Taken {
                id: decode_call_id(r)?,
                parts: match r.u32("number of parts")? {
                    0 => return Err(DecodeError::Invalid("number of parts")),
                    parts => parts,
                },
                stop: flags & TAKEN_STOP != 0,
            },
            kind::XDFSM => Self::XdfsM,
            kind::NOOP => Self::Noop,
            kind::CONM => Self::Conm,
            kind::ZXDFS => Self::Zxdfs,
            kind::OFFER => Self::Offer(Offer::decode_body(flags, r, limits)?),
            kind::ACCEPT => Self::Accept(Accept::decode_body(r, limits)?),
            kind::ACK => Self::Ack {
                data_frames: r.u64("count of data frames")?,
            },
            kind::REPEAT => Self::Repeat {
                file: FileId(r.u32("file")?),
                range: decode_range(r)?,
            },
            kind::DURABLE => Self::Durable {
                file: FileId(r.u32("file")?),
                bytes: r.u64("durable bytes")?,
            },
            kind::PUBLISHED => {
                let (file, length, store_wait_permille, digest) = decode_end(r)?;
                let failures = if flags & PUBLISHED_FAILURES != 0 {
                    Failures::decode(r)?
                } else {
                    Failures::default()
                };
                Self::Published {
                    file,
                    length,
                    digest,
                    store_wait_permille,
                    failures,
                }
            }
            kind::CANCEL => Self::Cancel {
                file: FileId(r.u32("file")?),
            },
            kind::HOLE => Self::Hole {
                file: FileId(r.u32("file")?),
                range: decode_range(r)?,
            },
            kind::EXCEPTION => {
                let scope = match (r.u8("scope")?, r.u32("file")?) {
                    (0, 0) => Scope::Channel,
                    (1, file) => Scope::File(FileId(file)),
                    (2, 0) => Scope::Session,
                    _ => return Err(DecodeError::Invalid("scope")),
                };
                Self::Exception {
                    scope,
                    fault: r.fault()?,
                }
            }
            // A BLOCK isn't decoded here: its payload never passes through this type.
            kind => return Err(DecodeError::UnknownKind(kind)),
        })
    }

    /// The name of the kind, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        kind::name(self.kind_and_flags().0)
    }
}

impl Offer {
    fn flags(&self) -> u8 {
        flag(self.overwrite, OFFER_OVERWRITE)
            | flag(self.dry_run, OFFER_DRY_RUN)
            | flag(self.length.is_some(), OFFER_LENGTH)
            | flag(self.mode.is_some(), OFFER_MODE)
            | flag(self.mtime_ns.is_some(), OFFER_MTIME)
            | flag(self.pack, OFFER_PACK)
            | flag(self.sparse && !self.pack, OFFER_SPARSE)
            | flag(self.relaxed && self.pack, OFFER_RELAXED)
    }

    fn encode_body(&self, w: &mut Writer<'_>) {
        w.u32(self.file.0);
        w.u64(self.length.unwrap_or(0));
        w.raw(&self.tag.0);
        w.u32(self.mode.unwrap_or(0));
        w.i64(self.mtime_ns.unwrap_or(0));
        w.u8(self.digest.number());
        w.u8(self.resume.number());
        w.path(&self.path);
        w.path(&self.name);
    }

    fn decode_body(flags: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let offer = Self {
            file: FileId(r.u32("file")?),
            length: present(flags, OFFER_LENGTH, r.u64("length")?, "length")?,
            tag: SourceTag(r.array("tag of the source")?),
            mode: present(flags, OFFER_MODE, r.u32("mode")?, "mode")?,
            mtime_ns: present(flags, OFFER_MTIME, r.i64("time")?, "time")?,
            digest: decode_digest_kind(r)?,
            resume: Resume::decode(r)?,
            path: r.path(limits.path_bytes_max, "path")?,
            name: r.path(limits.path_bytes_max, "name")?,
            overwrite: flags & OFFER_OVERWRITE != 0,
            dry_run: flags & OFFER_DRY_RUN != 0,
            pack: flags & OFFER_PACK != 0,
            sparse: flags & (OFFER_SPARSE | OFFER_PACK) == OFFER_SPARSE,
            relaxed: flags & (OFFER_RELAXED | OFFER_PACK) == OFFER_RELAXED | OFFER_PACK,
        };
        let sizes = 1..=PACK_BYTES_MAX as u64;
        let fits = offer.length.is_some_and(|length| sizes.contains(&length));
        let plain = offer.tag == SourceTag::default()
            && offer.resume == Resume::Never
            && !offer.dry_run
            && offer.mode.is_none()
            && offer.mtime_ns.is_none()
            && offer.name.is_empty();
        if offer.pack && !(fits && plain) {
            return Err(DecodeError::Invalid("offer of a pack"));
        }
        Ok(offer)
    }
}

impl Accept {
    /// Bytes of the body beside the durable ranges, at most: file, block size, path, digest kind
    /// and count.
    const FIXED_BYTES_MAX: usize = 4 + 4 + 2 + ACCEPT_PATH_BYTES_MAX + 1 + 4;

    /// How many durable ranges of this digest an ACCEPT can list: bounded by
    /// [`Limits::resume_ranges_max`] and by what fits into [`Limits::accept_bytes_max`].
    #[must_use]
    pub fn durable_max(kind: DigestKind, limits: &Limits) -> usize {
        // A fragment of BLAKE3 that starts at 0 has 32 bytes more; there is only one of them.
        let (each, once) = match kind {
            DigestKind::None => (16, 0),
            DigestKind::Crc64Nvme => (24, 0),
            DigestKind::Blake3 => (48, 32),
        };
        let room = (limits.accept_bytes_max as usize)
            .saturating_sub(Self::FIXED_BYTES_MAX)
            .saturating_sub(once);
        limits.resume_ranges_max.min(room / each)
    }

    fn encode_body(&self, w: &mut Writer<'_>) {
        let kind = self
            .durable
            .first()
            .map_or(DigestKind::None, |f| f.state.kind());
        let durable = || self.durable.iter().filter(|f| f.state.kind() == kind);
        w.u32(self.file.0);
        w.u32(self.block_size);
        w.bytes(&self.path, ACCEPT_PATH_BYTES_MAX);
        w.u8(kind.number());
        w.u32(u32::try_from(durable().count()).unwrap_or(u32::MAX));
        for fragment in durable() {
            encode_range(w, &fragment.range);
            encode_state(w, fragment.range.start, &fragment.state);
        }
    }

    fn decode_body(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let file = FileId(r.u32("file")?);
        let block_size = grid(r)?;
        let path = r.path(ACCEPT_PATH_BYTES_MAX, "path")?;
        let kind = decode_digest_kind(r)?;
        let count = r.u32("count of durable ranges")? as usize;
        if count > limits.resume_ranges_max {
            return Err(DecodeError::TooLarge {
                field: "count of durable ranges",
                actual: count as u64,
                limit: limits.resume_ranges_max as u64,
            });
        }
        if count == 0 && kind != DigestKind::None {
            return Err(DecodeError::Invalid("digest kind"));
        }
        // The count is the peer's: reserve no more than the bytes that are there can hold.
        let mut durable = Vec::with_capacity(count.min(r.remaining() / 16));
        let mut end = 0;
        for _ in 0..count {
            let range = decode_range(r)?;
            if range.start < end {
                return Err(DecodeError::Invalid("order of durable ranges"));
            }
            end = range.end;
            if kind == DigestKind::Blake3 && !range.start.is_multiple_of(SUBTREE_BYTES_MIN) {
                return Err(DecodeError::Invalid("range of a subtree"));
            }
            let state = decode_state(r, kind, range.start)?;
            durable.push(Fragment { range, state });
        }
        Ok(Self {
            file,
            path,
            block_size,
            durable,
        })
    }
}

impl Resume {
    fn number(self) -> u8 {
        match self {
            Self::Never => 0,
            Self::Trust => 1,
            Self::Verify => 2,
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8("resume")? {
            0 => Ok(Self::Never),
            1 => Ok(Self::Trust),
            2 => Ok(Self::Verify),
            _ => Err(DecodeError::Invalid("resume")),
        }
    }
}

impl DigestKind {
    /// The number on the wire.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Crc64Nvme => 1,
            Self::Blake3 => 2,
        }
    }
}

pub(super) fn decode_digest_kind(r: &mut Reader<'_>) -> Result<DigestKind, DecodeError> {
    match r.u8("digest kind")? {
        0 => Ok(DigestKind::None),
        1 => Ok(DigestKind::Crc64Nvme),
        2 => Ok(DigestKind::Blake3),
        _ => Err(DecodeError::Invalid("digest kind")),
    }
}

pub(super) fn encode_digest(w: &mut Writer<'_>, digest: &DigestValue) {
    match digest {
        DigestValue::None => w.u8(DigestKind::None.number()),
        DigestValue::Crc64Nvme(crc) => {
            w.u8(DigestKind::Crc64Nvme.number());
            w.u64(*crc);
        }
        DigestValue::Blake3(hash) => {
            w.u8(DigestKind::Blake3.number());
            w.raw(hash);
        }
    }
}

/// The state of a digest of a range that starts at `start`; its kind isn't in it.
pub(super) fn encode_state(w: &mut Writer<'_>, start: u64, state: &FragmentState) {
    match state {
        FragmentState::None => {}
        FragmentState::Crc64Nvme(crc) => w.u64(*crc),
        FragmentState::Blake3 { node, root } => {
            w.raw(node);
            if start == 0 {
                w.raw(root);
            }
        }
    }
}

pub(super) fn decode_state(
    r: &mut Reader<'_>,
    kind: DigestKind,
    start: u64,
) -> Result<FragmentState, DecodeError> {
    const FIELD: &str = "digest of a range";
    Ok(match kind {
        DigestKind::None => FragmentState::None,
        DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(r.u64(FIELD)?),
        DigestKind::Blake3 => FragmentState::Blake3 {
            node: r.array(FIELD)?,
            root: if start == 0 { r.array(FIELD)? } else { [0; 32] },
        },
    })
}

fn encode_range(w: &mut Writer<'_>, range: &ByteRange) {
    w.u64(range.start);
    w.u64(range.end);
}

fn decode_range(r: &mut Reader<'_>) -> Result<ByteRange, DecodeError> {
    let range = ByteRange {
        start: r.u64("start of a range")?,
        end: r.u64("end of a range")?,
    };
    if range.is_empty() {
        Err(DecodeError::Invalid("end of a range"))
    } else {
        Ok(range)
    }
}

/// The body of EOFR and of PUBLISHED: file, length, share of waiting, digest.
fn encode_end(w: &mut Writer<'_>, file: FileId, length: u64, digest: &DigestValue, wait: u16) {
    w.u32(file.0);
    w.u64(length);
    w.u16(wait.min(PERMILLE_MAX));
    encode_digest(w, digest);
}

fn decode_end(r: &mut Reader<'_>) -> Result<(FileId, u64, u16, DigestValue), DecodeError> {
    let file = FileId(r.u32("file")?);
    let length = r.u64("length")?;
    let store_wait_permille = r.u16("share of waiting")?;
    if store_wait_permille > PERMILLE_MAX {
        return Err(DecodeError::Invalid("share of waiting"));
    }
    Ok((file, length, store_wait_permille, decode_digest(r)?))
}

pub(super) fn decode_digest(r: &mut Reader<'_>) -> Result<DigestValue, DecodeError> {
    Ok(match decode_digest_kind(r)? {
        DigestKind::None => DigestValue::None,
        DigestKind::Crc64Nvme => DigestValue::Crc64Nvme(r.u64("digest")?),
        DigestKind::Blake3 => DigestValue::Blake3(r.array("digest")?),
    })
}

fn encode_call_id(w: &mut Writer<'_>, id: CallId) {
    w.u16(id.slot);
    w.u32(id.sequence);
}

fn decode_call_id(r: &mut Reader<'_>) -> Result<CallId, DecodeError> {
    let slot = r.u16("slot of a call")?;
    if slot >= CALL_SLOTS {
        return Err(DecodeError::Invalid("slot of a call"));
    }
    match r.u32("sequence of a call")? {
        0 => Err(DecodeError::Invalid("sequence of a call")),
        sequence => Ok(CallId { slot, sequence }),
    }
}

/// The distance of the lines of a grid.
fn grid(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match r.u32("block size")? {
        size @ BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX if size.is_power_of_two() => Ok(size),
        _ => Err(DecodeError::Invalid("block size")),
    }
}

/// A number of channels: at least 1.
fn channels(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match r.u32("number of channels")? {
        0 => Err(DecodeError::Invalid("number of channels")),
        channels => Ok(channels),
    }
}

// The texts of an exception fit into the smallest control frame that a side may allow.
const _: () = assert!(5 + crate::wire::FAULT_BYTES_MAX <= 8 << 10);
const _: () = assert!(ACCEPT_PATH_BYTES_MAX <= FAULT_TEXT_BYTES_MAX);
