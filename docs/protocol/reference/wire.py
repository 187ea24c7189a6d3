"""The bytes of the opening exchange and of every frame (opening.md, frames.md, xpathm.md, xdfsm.md).

A message is a dictionary: `frame` names it, the other keys are its fields. Integers are integers, byte strings
(paths too) are `bytes`, texts are `str`, what is absent is None. `decode` and `encode` are each other's inverse.
"""

import struct

from digests import BLAKE3, MD5, NAMES, crc32c

MAGIC = b"\xf8xDFS\r\n"
CONTROL_MAX = 64 << 10  # body of a control frame
ACCEPT_MAX = 256 << 10
BLOCK_MIN, BLOCK_MAX = 1024, 16 << 20
PATH_MAX = 4096
FRAGMENTS_MAX = 16_384
SLOTS = 128
U64 = (1 << 64) - 1

DIGEST_NAMES = {number: name for name, number in NAMES.items()}
RESUME = ("never", "trust", "verify")
DIGEST_SIZE = {"none": 0, "crc64nvme": 8, "blake3": 32, "sha256": 32, "md5": 16}

CODES = (
    "internal invalid-argument connection-refused connection-lost bad-magic version-unsupported "
    "feature-unsupported frame-too-large malformed-frame protocol-violation session-unknown "
    "too-many-channels limit-exceeded deadline-exceeded path-escape not-found permission-denied "
    "read-only already-exists is-a-directory not-a-directory not-a-regular-file name-too-long "
    "no-space integrity-mismatch source-changed offset-past-end busy shutting-down cancelled "
    "unsupported io authentication-failed server-untrusted protection-refused quota-exceeded "
    "not-empty cross-device stale lock-lost"
).split()
CODE_NUMBER = {name: number for number, name in enumerate(CODES, 1)}


class Fault(Exception):
    """What went wrong, as it is told to a peer and by one."""

    def __init__(self, code, operation, cause, path=b"", retry="never", hint=""):
        super().__init__(code, operation, cause)
        self.code, self.operation, self.cause = code, operation, cause
        self.path, self.retry, self.hint = path, retry, hint

    def __str__(self):
        path = f" {self.path.decode(errors='replace')}" if self.path else ""
        return f"can't {self.operation}{path}: {self.cause} [{self.code}]"


def malformed(what):
    """The fault of a field that has no valid value."""
    return Fault("malformed-frame", "read a frame", f"{what} has no valid value")


def too_large(what):
    """The fault of a length over its limit."""
    return Fault("frame-too-large", "read a frame", f"{what} is over its limit")


def violation(cause):
    """The fault of a frame that the rules don't allow."""
    return Fault("protocol-violation", "follow the peer", cause)


class Reader:
    """Takes fields from the front of a body."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        """The next `count` bytes."""
        if self.at + count > len(self.data):
            raise Fault("malformed-frame", "read a frame", "it ends within a field")
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def number(self, form):
        """A number in network order; `form` as `struct` names it."""
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def bounded(self, form, low, high, what):
        """A number that has to be within bounds."""
        value = self.number(form)
        if not low <= value <= high:
            raise malformed(what)
        return value

    def string(self, most=0xFFFF, what="string"):
        """A string of any bytes."""
        length = self.number("H")
        if length > most:
            raise too_large(what)
        return self.take(length)

    def path(self, most=PATH_MAX):
        """A path: no zero byte (F-7)."""
        path = self.string(most, "path")
        if b"\0" in path:
            raise malformed("path")
        return path

    def text(self, most=1024):
        """A text: UTF-8 without control characters (F-8)."""
        raw = self.string(most, "text")
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise malformed("text") from None
        if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text):
            raise malformed("text")
        return text

    def end(self):
        """Nothing may be left over (F-4)."""
        if self.at != len(self.data):
            raise Fault("malformed-frame", "read a frame", "bytes follow the last field")

    def rest(self):
        """All that is left."""
        return self.take(len(self.data) - self.at)


def pack(form, *values):
    """Numbers in network order."""
    return struct.pack(">" + form, *values)


def string(data):
    """A string with its length."""
    return pack("H", len(data)) + data


# The opening exchange.


def encode_features(features):
    """A list of (number, name, value)."""
    return b"".join(pack("H", n) + string(name.encode()) + string(v) for n, name, v in features)


def decode_features(body):
    """The features of a body, checked as O-5 and O-6 say."""
    reader, features, last = Reader(body), [], -1
    while reader.at < len(body):
        number = reader.number("H")
        name = reader.string(0xFFFF)
        if number <= last or not 1 <= len(name) <= 64 or not all(0x21 <= c <= 0x7E for c in name):
            raise malformed("feature")
        features.append((number, name.decode(), reader.string()))
        last = number
    return features


def hello(service=0, low=1, high=1, features=()):
    """The bytes of HELLO."""
    body = encode_features(features)
    return MAGIC + b"\0" + pack("BBBBI", service, low, high, 0, len(body)) + body


def welcome(version=1, features=()):
    """The bytes of an answer that welcomes."""
    body = encode_features(features)
    return MAGIC + b"\1" + pack("BBHI", 0, version, 0, len(body)) + body


def refusal(fault):
    """The bytes of an answer that refuses."""
    body = encode_fault(fault)
    return MAGIC + b"\1" + pack("BBHI", 1, 0, 0, len(body)) + body


def decode_opening(data, role):
    """(message, length) of the HELLO (role 0) or answer (role 1) at the front of `data`; None until it is whole."""
    magic = MAGIC + bytes([role])
    if data[: len(magic)] != magic[: len(data)]:
        raise Fault("bad-magic", "open the channel", "the first bytes are not those of xDFS")
    if len(data) < 16:
        return None
    a, b, c, d, length = struct.unpack(">BBBBI", data[8:16])
    if role == 0:
        if d != 0 or not 1 <= b <= c:
            raise malformed("HELLO")
        most = 4096
    else:
        if c or d or a > 1 or (a == 0) != (b > 0):
            raise malformed("answer")
        most = 4096 if a == 0 else 4111
    if length > most:
        raise too_large("body of the opening")
    if len(data) < 16 + length:
        return None
    body = bytes(data[16 : 16 + length])
    if role == 0:
        message = {"message": "HELLO", "service": a, "version_min": b, "version_max": c}
        message["features"] = decode_features(body)
    elif a == 0:
        message = {"message": "WELCOME", "version": b, "features": decode_features(body)}
    else:
        reader = Reader(body)
        message = {"message": "REFUSED", "fault": read_fault(reader)}
        reader.end()
    return message, 16 + length


# Parts that several frames have.


def encode_fault(fault):
    """The bytes of a fault; texts that are too long are cut at a character (F-16)."""
    after = fault.retry if isinstance(fault.retry, int) else 0
    kind = {"never": 0, "now": 1}.get(fault.retry, 2)
    code = fault.code if isinstance(fault.code, int) else CODE_NUMBER[fault.code]

    def cut(text):
        return string(text.encode()[:1024].decode(errors="ignore").encode())

    head = pack("HBI", code, kind, after) + cut(fault.operation)
    return head + string(fault.path[:1024]) + cut(fault.cause) + cut(fault.hint)


def read_fault(reader):
    """A fault from a body."""
    code = reader.number("H")
    kind = reader.bounded("B", 0, 2, "retry")
    after = reader.number("I")
    if kind != 2 and after:
        raise malformed("retry")
    operation, path = reader.text(), reader.string(1024)
    cause, hint = reader.text(), reader.text()
    name = CODES[code - 1] if 1 <= code <= len(CODES) else "internal"  # F-17
    return Fault(name, operation, cause, path, ("never", "now", after)[kind], hint)


def read_digest_kind(reader, may_be_none=True):
    """A digest by its number, as its name."""
    return DIGEST_NAMES[reader.bounded("B", 0 if may_be_none else 1, BLAKE3, "digest kind")]


def read_checksum_kind(reader):
    """A digest of a checksum call, as its name."""
    return DIGEST_NAMES[reader.bounded("B", 1, MD5, "digest kind")]


def encode_digest(digest):
    """The kind and the value of a (kind, value)."""
    return pack("B", NAMES[digest[0]]) + digest[1]


def read_digest(reader):
    """A (kind, value)."""
    kind = read_digest_kind(reader)
    return kind, reader.take(DIGEST_SIZE[kind])


def read_checksum(reader):
    """A (kind, value) that answers a checksum call."""
    kind = read_checksum_kind(reader)
    return kind, reader.take(DIGEST_SIZE[kind])


def read_state(reader, kind, start):
    """The state of a range that starts at `start`."""
    if kind == "none":
        return b""
    return reader.take(8 if kind == "crc64nvme" else 64 if start == 0 else 32)


def read_block_size(reader):
    """A power of two from 1024 to 16 MiB."""
    size = reader.bounded("I", BLOCK_MIN, BLOCK_MAX, "block size")
    if size & (size - 1):
        raise malformed("block size")
    return size


def read_mode(reader, given=True):
    """Permission bits, or 0 if absent."""
    mode = reader.bounded("H", 0, 0o7777 if given else 0, "mode")
    return mode if given else None


def _given(reader, form, flag, what):
    """A number, or None: then it has to be 0 (F-5)."""
    value = reader.number(form)
    if not flag and value:
        raise malformed(what)
    return value if flag else None


# Frames: kind, flags that may be set, how the body is read and written.


def _write_offer(f):
    flags = sum(
        bit
        for bit, on in (
            (1, f["overwrite"]), (4, f["dry_run"] or f.get("last") is not None), (8, f["length"] is not None), (16, f["mode"] is not None),
            (32, f["mtime_ns"] is not None), (64, f["pack"]), (128, f["sparse"] or f.get("relaxed")),
        )
        if on
    )  # fmt: skip
    head = pack("IQ", f["file"], f["length"] or 0) + f["tag"]
    middle = pack("IqBB", f["mode"] or 0, f["mtime_ns"] or 0, NAMES[f["digest"]], RESUME.index(f["resume"]))
    awaited = f.get("last")
    tail = b"" if awaited is None else pack("H", len(awaited)) + b"".join(pack("I", n) for n in awaited)
    return flags, head + middle + string(f["path"]) + string(f["name"]) + tail


def _read_offer(r, flags):
    f = {"overwrite": bool(flags & 1), "dry_run": flags & 68 == 4, "pack": bool(flags & 64)}
    f["sparse"], f["relaxed"] = flags & 0xC0 == 128, flags & 0xC0 == 0xC0
    f["file"] = r.number("I")
    f["length"] = _given(r, "Q", flags & 8, "length")
    f["tag"] = r.take(16)
    f["mode"] = _given(r, "I", flags & 16, "mode")
    f["mtime_ns"] = _given(r, "q", flags & 32, "time")
    f["digest"] = read_digest_kind(r)
    f["resume"] = RESUME[r.bounded("B", 0, 2, "resume")]
    f["path"], f["name"] = r.path(), r.path()
    f["last"] = None
    if flags & 68 == 68:
        f["last"] = [r.number("I") for _ in range(r.bounded("H", 0, 256, "count of awaited files"))]
    extra = f["resume"] != "never" or f["dry_run"] or f["mode"] is not None
    if f["pack"] and (extra or f["length"] is None or any(f["tag"]) or f["name"] or f["mtime_ns"] is not None):
        raise malformed("offer of a pack")
    return f


def _write_request(f):
    wanted, length = f["pack"], f["length"]
    body = pack("IQQB", f["file"], f["offset"], length or 0, NAMES[f["digest"]]) + string(f["path"])
    if wanted:
        keep = wanted["keep_owner"] | wanted["keep_xattrs"] << 1 | wanted["keep_read_times"] << 2
        keep |= wanted["follow_links"] << 3
        body += pack("BIH", keep, wanted["file_bytes_max"], len(wanted["names"]))
        body += b"".join(map(string, wanted["names"]))
    return (length is not None) | bool(wanted) << 1, body


def _read_request(r, flags):
    f = {"file": r.number("I"), "offset": r.number("Q"), "pack": None}
    f["length"] = _given(r, "Q", flags & 1, "length")
    f["digest"], f["path"] = read_digest_kind(r), r.path()
    if flags & 2:
        if f["offset"] or flags & 1:
            raise malformed("request of a pack")
        keep = r.bounded("B", 0, 15, "keep")
        wanted = {"keep_owner": bool(keep & 1), "keep_xattrs": bool(keep & 2)}
        wanted["keep_read_times"] = bool(keep & 4)
        wanted["follow_links"] = bool(keep & 8)
        wanted["file_bytes_max"] = r.number("I")
        wanted["names"] = [r.path() for _ in range(r.bounded("H", 1, 0xFFFF, "names"))]
        if not all(map(is_beneath, wanted["names"])):
            raise malformed("names of a pack")
        f["pack"] = wanted
    elif f["length"] is not None and f["offset"] + f["length"] > U64:
        raise malformed("length")
    return f


def is_beneath(path):
    """Whether a path stays beneath its directory: no name is empty, `.` or `..` (K-6)."""
    return all(name not in (b"", b".", b"..") for name in path.split(b"/"))


def _write_accept(f):
    fragments = f["durable"]
    kind = NAMES[f["digest"]] if fragments else 0
    head = pack("II", f["file"], f["block_size"]) + string(f["path"][:1024])
    body = b"".join(pack("QQ", start, end) + state for start, end, state in fragments)
    return 0, head + pack("BI", kind, len(fragments)) + body


def _read_accept(r, _flags):
    f = {"file": r.number("I"), "block_size": read_block_size(r), "path": r.path(1024)}
    f["digest"] = read_digest_kind(r)
    count = r.number("I")
    if count > FRAGMENTS_MAX:
        raise too_large("count of ranges")
    if count == 0 and f["digest"] != "none":
        raise malformed("digest kind")
    f["durable"], last = [], 0
    for _ in range(count):
        start, end = r.number("Q"), r.number("Q")
        if end <= start or start < last:
            raise malformed("range")
        f["durable"].append((start, end, read_state(r, f["digest"], start)))
        last = end
    return f


# What an account tells, behind the time that the side waited for its store (F-27).
ACCOUNT = ("time_us", "sync_permille", "cpu_permille", "rate_permille", "payload_permille")


def _write_end(f):
    failures = f.get("failures")
    body = pack("IQH", f["file"], f["length"], f["store_wait_permille"]) + encode_digest(f["digest"])
    account = f.get("account")
    if account:
        body += pack("QHHHH", *(account[name] for name in ACCOUNT))
    if failures:
        body += pack("H", len(failures))
        body += b"".join(pack("II", a, n) + encode_fault(fault) for a, n, fault in failures)
    return bool(failures) | bool(account) << 1, body


def _read_end(r, flags):
    f = {"file": r.number("I"), "length": r.number("Q")}
    f["store_wait_permille"] = r.bounded("H", 0, 1000, "share of waiting")
    f["digest"] = read_digest(r)
    if flags & 2:
        f["account"] = {name: r.number(form) for name, form in zip(ACCOUNT, "QHHHH")}
    return f


def _read_published(r, flags):
    f = _read_end(r, flags)
    f["failures"], last = [], 0
    for _ in range(r.bounded("H", 1, 12, "runs") if flags & 1 else 0):
        first = r.bounded("I", last, 0xFFFFFFFF, "run")
        count = r.bounded("I", 1, 0xFFFFFFFF, "run")
        f["failures"].append((first, count, read_fault(r)))
        last = first + count
    return f


def _read_range(r, _flags):
    f = {"file": r.number("I"), "start": r.number("Q"), "end": r.number("Q")}
    if f["end"] <= f["start"]:
        raise malformed("range")
    return f


def _write_exception(f):
    scope = ("channel", "file", "session").index(f["scope"])
    return 0, pack("BI", scope, f["file"]) + encode_fault(f["fault"])


def _read_exception(r, _flags):
    scope = ("channel", "file", "session")[r.bounded("B", 0, 2, "scope")]
    file = r.number("I")
    if scope != "file" and file:
        raise malformed("scope")
    return {"scope": scope, "file": file, "fault": read_fault(r)}


def _read_session(r, flags):
    f = {"session": r.take(16), "channels": r.bounded("I", 1, 0xFFFFFFFF, "channels")}
    f["block_size"], f["window"] = r.number("I"), r.number("I")
    if 0 < f["block_size"] < BLOCK_MIN:  # S-36
        raise malformed("block size")
    f["start"] = "strict" if flags else "elastic"
    f["user"] = r.text(255)
    return f


def _write_session(f):
    body = f["session"] + pack("III", f["channels"], f["block_size"], f["window"])
    return f["start"] == "strict", body + string(f["user"].encode())


def _read_session_ok(r, _flags):
    f = {"secret": r.take(16), "channels": r.bounded("I", 1, 0xFFFFFFFF, "channels")}
    f["block_size"], f["window"] = read_block_size(r), r.number("I")
    return f


def _read_call(r, _flags):
    from calls import read_call

    return read_call(r)


def _write_call(f):
    from calls import write_call

    return 0, write_call(f)


def _read_answer(r, flags):
    from calls import read_answer

    return read_answer(r, bool(flags))


def _write_answer(f):
    from calls import write_answer

    return f["last"], write_answer(f)


def read_name(r):
    """The name of a call: slot and number in the slot."""
    return {"slot": r.bounded("H", 0, SLOTS - 1, "slot"), "sequence": r.bounded("I", 1, 0xFFFFFFFF, "number")}


def _read_taken(r, flags):
    return {**read_name(r), "parts": r.bounded("I", 1, 0xFFFFFFFF, "parts"), "stop": bool(flags)}


def _fields(*layout):
    """Reading and writing of a body of plain fields: (name, `struct` form)."""

    def read(r, _flags):
        return {name: r.number(form) for name, form in layout}

    def write(f):
        return 0, b"".join(pack(form, f[name]) for name, form in layout)

    return read, write


PURPOSES = ("check", "connect", "listen", "take", "join")


def _read_tunnel(r, _flags):
    purpose = PURPOSES[r.bounded("B", 0, 4, "purpose")]
    target, number, bundle = r.text(512), r.number("Q"), r.number("Q")
    if (number != 0) != (purpose == "take"):
        raise malformed("number of a connection")
    if purpose in ("check", "listen") and bundle or purpose == "join" and not bundle:
        raise malformed("number of a bundle")
    return {"purpose": purpose, "target": target, "number": number, "bundle": bundle}


_RANGE = (_read_range, lambda f: (0, pack("IQQ", f["file"], f["start"], f["end"])))
_BODY = (lambda r, _: {"body": r.string(16_384)}, lambda f: (0, string(f["body"])))
_EMPTY = _fields()
KINDS = {
    0x01: ("SESSION", 1, _read_session, _write_session),
    0x02: ("SESSION-OK", 0, _read_session_ok,
           lambda f: (0, f["secret"] + pack("III", f["channels"], f["block_size"], f["window"]))),
    0x03: ("JOIN", 0,
           lambda r, _: {"session": r.take(16), "secret": r.take(16), "channel": r.number("I")},
           lambda f: (0, f["session"] + f["secret"] + pack("I", f["channel"]))),
    0x04: ("JOIN-OK", 0, *_EMPTY),
    0x05: ("LEAVE", 0, *_EMPTY),
    0x06: ("AUTH", 0,
           lambda r, _: {"method": r.number("B"), "user": r.text(255), "body": r.string(16_384)},
           lambda f: (0, pack("B", f["method"]) + string(f["user"].encode()) + string(f["body"]))),
    0x07: ("CHALLENGE", 0, *_BODY),
    0x08: ("PROOF", 0, *_BODY),
    0x09: ("AUTH-OK", 0, lambda r, _: {"user": r.text(255)}, lambda f: (0, string(f["user"].encode()))),
    0x0A: ("PROTECT", 0,
           lambda r, _: {"level": ("private", "clear")[r.bounded("B", 0, 1, "level")]},
           lambda f: (0, pack("B", f["level"] == "clear"))),
    0x0B: ("TUNNEL", 0, _read_tunnel,
           lambda f: (0, pack("B", PURPOSES.index(f["purpose"])) + string(f["target"].encode())
                      + pack("QQ", f["number"], f["bundle"]))),
    0x0C: ("TUNNEL-OK", 0, lambda r, _: {"address": r.text(512)},
           lambda f: (0, string(f["address"].encode()))),
    0x0D: ("INCOMING", 0, lambda r, _: {"number": r.number("Q"), "peer": r.text(512)},
           lambda f: (0, pack("Q", f["number"]) + string(f["peer"].encode()))),
    0x10: ("EOFT", 0, *_EMPTY),
    0x11: ("EOFR", 2, _read_end, _write_end),
    0x12: ("XFTSMU", 0xFD, _read_offer, _write_offer),
    0x13: ("XFTSM", 3, _read_request, _write_request),
    0x14: ("XPATHM", 0, _read_call, _write_call),
    0x15: ("XDFSM", 0, *_EMPTY),
    0x16: ("NOOP", 0, *_EMPTY),
    0x17: ("CONM", 0, *_EMPTY),
    0x18: ("ZXDFS", 0, *_EMPTY),
    0x19: ("OFFER", 0xFD, _read_offer, _write_offer),
    0x1A: ("ACCEPT", 0, _read_accept, _write_accept),
    0x1B: ("ACK", 0, *_fields(("data_frames", "Q"))),
    0x1C: ("REPEAT", 0, *_RANGE),
    0x1D: ("DURABLE", 0, *_fields(("file", "I"), ("bytes", "Q"))),
    0x1E: ("PUBLISHED", 3, _read_published, _write_end),
    0x1F: ("CANCEL", 0, *_fields(("file", "I"))),
    0x21: ("HOLE", 0, *_RANGE),
    0x30: ("ANSWER", 1, _read_answer, _write_answer),
    0x31: ("TAKEN", 1, _read_taken,
           lambda f: (f["stop"], pack("HII", f["slot"], f["sequence"], f["parts"]))),
    0x7F: ("EXCEPTION", 0, _read_exception, _write_exception),
}  # fmt: skip
NUMBER = {entry[0]: kind for kind, entry in KINDS.items()}
BLOCK = 0x20


def frame_length(data, block_max=BLOCK_MAX):
    """The length of the frame at the front of `data`, from its header alone (F-3); None until that is there."""
    if len(data) < (24 if data[:1] == bytes([BLOCK]) else 8):
        return None
    kind, flags, reserved, length = struct.unpack(">BBHI", data[:8])
    if kind == BLOCK:
        if reserved != header_check(data[:24]):
            raise DamagedHeader
        reserved = 0
        allowed, low, high = 1, 17, 16 + block_max
    elif kind in KINDS:
        allowed, low, high = KINDS[kind][1], 0, ACCEPT_MAX if kind == 0x1A else CONTROL_MAX
    else:
        raise Fault("malformed-frame", "read a frame", f"kind {kind:#04x} is unknown")
    if reserved or flags & ~allowed:
        raise malformed("header of a frame")
    if length > high:
        raise too_large("frame")
    if length < low:
        raise malformed("length of a block")
    return 8 + length


class DamagedHeader(Fault):
    """Nothing that follows on the channel can be read (F-21)."""

    def __init__(self):
        cause = "the header of a block was damaged on its way"
        super().__init__("integrity-mismatch", "read a frame", cause, retry="now")


def header_check(header):
    """The header check of a block: the low half of the CRC-32C of its other 22 bytes (F-20)."""
    return crc32c(bytes(header[:2] + header[4:24])) & 0xFFFF


def decode(data, block_max=BLOCK_MAX):
    """The message of one whole frame."""
    length = frame_length(data, block_max)
    if length is None or len(data) < length:
        raise Fault("malformed-frame", "read a frame", "the frame is cut")
    kind, flags = data[0], data[1]
    reader = Reader(data[8:])
    if kind == BLOCK:
        file, check, offset = struct.unpack(">IIQ", reader.take(16))
        payload = reader.rest()
        if offset + len(payload) > U64:
            raise malformed("offset of a block")
        clear = bool(flags & 1)
        return {"frame": "BLOCK", "clear": clear, "file": file, "check": check, "offset": offset, "payload": payload}
    name, _, read, _ = KINDS[kind]
    message = read(reader, flags)
    reader.end()
    return {"frame": name, **message}


def encode(frame, **fields):
    """The bytes of a frame, given as a message or as its name and fields."""
    message = {"frame": frame, **fields} if isinstance(frame, str) else frame
    name = message["frame"]
    if name == "BLOCK":
        payload = message["payload"]
        head = pack("BBHI", BLOCK, message.get("clear", False), 0, 16 + len(payload))
        head += pack("IIQ", message["file"], message["check"], message["offset"])
        return head[:2] + pack("H", header_check(head)) + head[4:] + payload
    flags, body = KINDS[NUMBER[name]][3](message)
    return pack("BBHI", NUMBER[name], flags, 0, len(body)) + body
