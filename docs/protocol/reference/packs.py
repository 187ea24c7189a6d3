"""Packs: many entries of a tree as the bytes of one file (packs.md)."""

from wire import Fault, Reader, encode_fault, is_beneath, malformed, pack, read_fault, string

KINDS = "file directory symbolic-link hard-link named-pipe attributes large failed".split()
PACK_MAX = 4 << 20


def encode_entries(entries):
    """The bytes of a pack."""
    return b"".join(map(encode_entry, entries))


def encode_entry(entry):
    """The bytes of one entry; what it lacks is absent."""
    e = {"mode": None, "mtime_ns": None, "atime_ns": None, "owner": None, "xattrs": [], "sparse": False, **entry}
    owner = e["owner"]
    names = owner and owner["names"]
    present = (e["mode"] is not None, e["mtime_ns"] is not None, e["atime_ns"] is not None, owner, names, e["xattrs"])
    flags = sum(1 << i for i, on in enumerate(present) if on) | e["sparse"] << 6
    data = pack("BB", KINDS.index(e["kind"]), flags) + string(e["path"])
    for field, form in (("mode", "H"), ("mtime_ns", "q"), ("atime_ns", "q")):
        if e[field] is not None:
            data += pack(form, e[field])
    if owner:
        data += pack("II", owner["uid"], owner["gid"])
    if names:
        data += string(names[0]) + string(names[1])
    if e["xattrs"]:
        data += pack("H", len(e["xattrs"]))
        data += b"".join(string(n) + pack("I", len(v)) + v for n, v in e["xattrs"])
    kind = e["kind"]
    if kind == "file":
        data += pack("I", len(e["bytes"])) + e["bytes"]
    elif kind in ("symbolic-link", "hard-link"):
        data += string(e["to"])
    elif kind == "large":
        data += pack("Q", e["size"])
    elif kind == "failed":
        data += encode_fault(e["fault"])
    return data


def _read_xattrs(r):
    xattrs = []
    for _ in range(r.bounded("H", 1, 256, "extended attributes")):
        name = r.string(255)
        length = r.bounded("I", 0, 65_536, "extended attributes")
        if not name or b"\0" in name:
            raise malformed("extended attributes")
        xattrs.append([name, r.take(length)])
    return xattrs


def decode_entries(data):
    """The entries of a pack, which is refused as a whole if one is wrong (K-9)."""
    r, entries = Reader(data), []
    while r.at < len(data):
        kind = KINDS[r.bounded("B", 0, len(KINDS) - 1, "kind of an entry")]
        flags = r.bounded("B", 0, 0x7F, "flags of an entry")
        if flags & 0x18 == 0x10 or (flags & 0x40 and kind != "file"):
            raise malformed("flags of an entry")
        path = r.path()
        if not is_beneath(path) and not (path == b"" and kind in ("directory", "attributes")):
            raise malformed("path in a pack")
        e = {"kind": kind, "path": path, "sparse": bool(flags & 0x40)}
        e["mode"] = r.bounded("H", 0, 0o7777, "mode") if flags & 1 else None
        e["mtime_ns"] = r.number("q") if flags & 2 else None
        e["atime_ns"] = r.number("q") if flags & 4 else None
        e["owner"] = {"uid": r.number("I"), "gid": r.number("I"), "names": None} if flags & 8 else None
        if flags & 0x10:
            e["owner"]["names"] = [r.string(255), r.string(255)]
        e["xattrs"] = _read_xattrs(r) if flags & 0x20 else []
        if kind == "file":
            e["bytes"] = r.take(r.number("I"))
        elif kind in ("symbolic-link", "hard-link"):
            e["to"] = r.path()
            if not e["to"] or (kind == "hard-link" and not is_beneath(e["to"])):
                raise malformed("target of a link")
        elif kind == "large":
            e["size"] = r.number("Q")
        elif kind == "failed":
            e["fault"] = read_fault(r)
        entries.append(e)
    return entries


def runs_of(failures):
    """Failures as (entry, fault) in ascending order, as the runs of PUBLISHED: at most 12 (K-10)."""
    runs = []
    for index, fault in failures:
        if runs:
            first, count, earlier = runs[-1]
            same = (earlier.code, earlier.cause) == (fault.code, fault.cause)
            if (same and first + count == index) or len(runs) == 12:
                told = earlier if same or earlier.code != "already-exists" else fault
                runs[-1] = (first, index - first + 1, told)
                continue
        runs.append((index, 1, fault))
    return runs


def unexpected(cause):
    """The fault of a pack that isn't what was asked for."""
    return Fault("protocol-violation", "read a pack", cause)
