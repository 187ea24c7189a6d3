"""The bodies of XPATHM and ANSWER: calls about paths (xpathm.md) and about open files (xdfsm.md)."""

from digests import NAMES
from wire import (
    BLOCK_MAX,
    U64,
    Fault,
    encode_digest,
    encode_fault,
    malformed,
    pack,
    read_block_size,
    read_checksum,
    read_checksum_kind,
    read_digest,
    read_digest_kind,
    read_fault,
    read_mode,
    read_name,
    read_state,
    string,
    too_large,
)

RESUMES = ("never", "trust", "verify")
COPY_STATES = ("connecting", "moving", "done", "unreachable", "failed")
DATA_MAX = 61_440  # bytes that one call reads or writes
KINDS = "file directory symlink fifo socket block-device character-device other".split()


# Pieces of calls.


def _extents(r):
    count = r.number("H")
    if count == 0:
        raise malformed("number of extents")
    if count > 256:
        raise too_large("number of extents")
    extents = []
    for _ in range(count):
        offset, length = r.number("Q"), r.number("I")
        if length == 0 or offset + length > U64:
            raise malformed("extent")
        extents.append({"offset": offset, "length": length})
    if sum(e["length"] for e in extents) > DATA_MAX:
        raise too_large("length of data")
    return extents


def _write_extents(extents):
    return pack("H", len(extents)) + b"".join(pack("QI", e["offset"], e["length"]) for e in extents)


def _lock_range(r, given):
    offset, length = r.number("Q"), r.number("Q")
    if (given and (length == 0 or offset + length > U64)) or (not given and length):
        raise malformed("range of a lock")
    return {"offset": offset, "length": length if given else None}


def _optional(r, form, given, what):
    value = r.number(form)
    if value and not given:
        raise malformed(what)
    return value if given else None


def _handle(r):
    return r.bounded("I", 1, 0xFFFFFFFF, "handle")


def _read_open(r, o):
    flags = {n: bool(o & b) for n, b in OPEN.items()}
    changes = flags["append"] or flags["create"] or flags["truncate"]
    if not o & 3 or (changes and not o & 2) or (flags["exclusive"] and not o & 8):
        raise malformed("flags of a file")
    if o & 0x80 and o & 0x28:
        raise malformed("flags of a file")
    mode = read_mode(r, bool(o & 0x40))
    if mode is not None and not o & 8:
        raise malformed("mode")
    owner = r.take(16)
    identity = {"device": r.number("Q"), "inode": r.number("Q"), "born_ns": r.number("q")}
    if not o & 0x80 and any(identity.values()):
        raise malformed("identity")
    return {**flags, "mode": mode, "owner": owner, "identity": identity if o & 0x80 else None, "path": r.path()}


OPEN = {"read": 1, "write": 2, "append": 4, "create": 8, "exclusive": 16, "truncate": 32}
NO_IDENTITY = {"device": 0, "inode": 0, "born_ns": 0}


def _write_open(c):
    o = sum(b for n, b in OPEN.items() if c[n])
    o |= (c["mode"] is not None) << 6 | (c["identity"] is not None) << 7
    identity = c["identity"] or NO_IDENTITY
    body = pack("H", c["mode"] or 0) + c["owner"]
    body += pack("QQq", identity["device"], identity["inode"], identity["born_ns"])
    return o, body + string(c["path"])


def _read_list_partial(r, _o):
    c = {"path": r.path(), "after": r.path()}
    if c["after"] in (b".", b"..") or b"/" in c["after"]:
        raise malformed("name of an entry")
    return c


def _read_remove_partial(r, o):
    time, path = r.number("q"), r.path()
    if time and not o & 2:
        raise malformed("time")
    return {"unchanged_since_ns": time if o & 2 else None, "path": path}


def _read_signatures(r, _o):
    c = {"digest": read_digest_kind(r), "block_size": read_block_size(r)}
    c["first"], c["count"] = r.number("Q"), r.number("I")
    if c["count"] == 0:
        raise malformed("number of blocks")
    if c["count"] > 1024 or c["count"] * c["block_size"] > 64 << 20:
        raise too_large("blocks")
    if (c["first"] + c["count"]) * c["block_size"] > U64:
        raise malformed("number of a block")
    return {**c, "path": r.path()}


def _read_seed(r, o):
    c = {"overwrite": bool(o & 1), "sparse": bool(o & 2), "tag": r.take(16)}
    if not any(c["tag"]):
        raise malformed("tag")
    c["length"] = r.bounded("Q", 1, U64, "length")
    c["digest"], c["block_size"] = read_digest_kind(r, False), read_block_size(r)
    c["path"], c["to"], c["pieces"] = r.path(), r.path(), []
    count = r.number("H")
    if count == 0:
        raise malformed("number of pieces")
    if count > 512:
        raise too_large("number of pieces")
    last = total = 0
    for _ in range(count):
        offset, source = r.number("Q"), r.number("Q")
        length = r.bounded("I", 1, BLOCK_MAX, "length of a piece")
        end = offset + length
        on_grid = offset % c["block_size"] == 0 and (end % c["block_size"] == 0 or end == c["length"])
        if offset < last or end > c["length"] or source + length > U64 or not on_grid:
            raise malformed("piece")
        if c["digest"] == "blake3":
            full = 1 << max(length - 1, 1023).bit_length()
            if offset % full or (length != full and end != c["length"]):
                raise malformed("piece")
        state = read_state(r, c["digest"], offset)
        c["pieces"].append({"offset": offset, "from_offset": source, "length": length, "state": state})
        last, total = end, total + length
    if total > 256 << 20:
        raise too_large("bytes of pieces")
    return c


def _write_seed(c):
    body = c["tag"] + pack("QBI", c["length"], NAMES[c["digest"]], c["block_size"])
    body += string(c["path"]) + string(c["to"]) + pack("H", len(c["pieces"]))
    for p in c["pieces"]:
        body += pack("QQI", p["offset"], p["from_offset"], p["length"]) + p["state"]
    return c["overwrite"] | c["sparse"] << 1, body


def _read_checksum(r, o):
    c = {"offset": r.number("Q"), "length": _optional(r, "Q", o & 2, "length")}
    if c["offset"] + (c["length"] or 0) > U64:
        raise malformed("length")
    return {**c, "digest": read_checksum_kind(r), "path": r.path()}


def _read_account(r):
    form = r.bounded("B", 0, 4, "form of an account")
    if form == 0:
        return None
    kind = "group" if form in (2, 4) else "user"
    if form < 3:
        return {kind: r.number("I")}
    name = r.text(255)
    if not name:
        raise malformed("name of an account")
    return {kind + "_name": name}


def _write_account(account):
    if account is None:
        return pack("B", 0)
    ((key, value),) = account.items()
    form = 1 + ("user", "group", "user_name", "group_name").index(key)
    return pack("B", form) + (pack("I", value) if form < 3 else string(value.encode()))


def _read_accounts(r):
    count = r.bounded("H", 1, 0xFFFF, "number of accounts")
    if count > 128:
        raise too_large("number of accounts")
    return [_read_account(r) for _ in range(count)]


def _write_accounts(accounts):
    return pack("H", len(accounts)) + b"".join(map(_write_account, accounts))


def _read_look_up(r, _o):
    c = {"path": r.path(), "accounts": _read_accounts(r)}
    if None in c["accounts"]:
        raise malformed("form of an account")
    return c


def _append_data(r, _o):
    length = r.bounded("I", 1, 0xFFFFFFFF, "length of data")
    if length > DATA_MAX:
        raise too_large("length of data")
    return r.take(length)


def _read_write(r, o):
    c = {"locked": bool(o & 1), "handle": _handle(r), "extents": _extents(r)}
    return {**c, "bytes": r.take(sum(e["length"] for e in c["extents"]))}


def _one_path(name):
    return name, 0, lambda r, _: {"path": r.path()}, lambda c: (0, string(c["path"]))


def _two_paths(name):
    def write(c):
        return c["overwrite"], string(c["path"]) + string(c["to"])

    return name, 1, lambda r, o: {"overwrite": bool(o & 1), "path": r.path(), "to": r.path()}, write


def _locking(name, tail, write_tail):
    """A call about a range of bytes of a handle."""

    def read(r, o):
        return {"handle": _handle(r), **_lock_range(r, bool(o & 2)), **tail(r, o)}

    def write(c):
        given = c["length"] is not None
        o = given << 1 | c.get("exclusive", False)
        return o, pack("IQQ", c["handle"], c["offset"], c["length"] or 0) + write_tail(c)

    return read, write


def _read_delegate(r, o):
    c = {"writes": bool(o & 1), "copy": r.take(16), "holder": r.take(32), "bytes_max": r.number("Q")}
    return {**c, "life_s": r.bounded("I", 1, 86_400, "life of a capability"), "path": r.path()}


def _write_delegate(c):
    body = c["copy"] + c["holder"] + pack("QI", c["bytes_max"], c["life_s"])
    return c["writes"], body + string(c["path"])


def _read_order(r, o):
    c = {"overwrite": bool(o & 1), "sends": bool(o & 2), "detached": bool(o & 4), "copy": r.take(16)}
    c["resume"] = RESUMES[r.bounded("B", 0, 2, "resume")]
    c["digest"], c["channels"], c["rate_max"] = read_digest_kind(r), r.number("H"), r.number("Q")
    c["key"], c["capability"], count = r.take(32), r.text(256), r.number("B")
    if count > 16:
        raise too_large("count of addresses")
    c["addresses"] = [r.text(261) for _ in range(count)]
    if not count:
        raise malformed("count of addresses")
    return {**c, "here": r.path(), "there": r.path(), "name_in_directory": r.path()}


def _write_order(c):
    body = c["copy"] + pack("BBHQ", RESUMES.index(c["resume"]), NAMES[c["digest"]], c["channels"], c["rate_max"])
    body += c["key"] + string(c["capability"].encode()) + pack("B", len(c["addresses"]))
    body += b"".join(string(address.encode()) for address in c["addresses"])
    body += string(c["here"]) + string(c["there"]) + string(c["name_in_directory"])
    return c["overwrite"] | c["sends"] << 1 | c["detached"] << 2, body


def _read_delegate_tree(r, o):
    c = {"writes": bool(o & 1), "copy": r.take(16), "holder": r.take(32)}
    return {**c, "life_s": r.bounded("I", 1, 86_400, "life of a capability"), "path": r.path()}


def _write_delegate_tree(c):
    return c["writes"], c["copy"] + c["holder"] + pack("I", c["life_s"]) + string(c["path"])


TREE_FLAGS = ("synchronises", "sends", "detached", "keeps_root", "again")


def _read_tree_order(r, o):
    c = {name: bool(o >> bit & 1) for bit, name in enumerate(TREE_FLAGS)}
    c["copy"], c["channels"] = r.take(16), r.number("H")
    c["key"], c["capability"], count = r.take(32), r.text(256), r.number("B")
    if count > 16:
        raise too_large("count of addresses")
    c["addresses"] = [r.text(261) for _ in range(count)]
    if not count:
        raise malformed("count of addresses")
    c["here"], c["there"], options = r.path(), r.path(), r.string(32 << 10)
    try:
        return {**c, "options": options.decode()}
    except UnicodeDecodeError:
        raise malformed("options of a tree") from None


def _write_tree_order(c):
    body = c["copy"] + pack("H", c["channels"]) + c["key"] + string(c["capability"].encode())
    body += pack("B", len(c["addresses"]))
    body += b"".join(string(address.encode()) for address in c["addresses"])
    body += string(c["here"]) + string(c["there"]) + string(c["options"].encode())
    return sum(c[name] << bit for bit, name in enumerate(TREE_FLAGS)), body


def _read_tree_query(r, o):
    if o & 3 == 3:
        raise malformed("options of a call")
    return {"copy": r.take(16), "from": r.number("Q"), "consent": (None, True, False)[o]}


def _write_tree_query(c):
    return (None, True, False).index(c["consent"]), c["copy"] + pack("Q", c["from"])


# Operations: name, options that may be set, how the fields are read and written.
PARCEL_ENDS = ("cancel", "retry")


RELAYS_MAX = 8


def _read_relays(r):
    count = r.number("B")
    if count > RELAYS_MAX:
        raise too_large("relays")
    return count


def _read_relay(r):
    url = r.text(512)
    if not url:
        raise malformed("relay")
    return url


def _read_parcel(r, o):
    c = {"parcel": r.take(16), "overwrite": bool(o & 1), "tree": bool(o & 2), "ahead": bool(o & 16)}
    if o & 3 == 3:
        raise malformed("options of a call")
    c["bytes"] = r.number("Q")
    c["life_s"] = r.bounded("I", 1, 30 * 86400, "life of a parcel")
    c["target"], c["name"] = r.text(3 * 4096 + 512), r.path()
    c["digest"] = read_digest(r)
    if c["ahead"] and c["digest"][0] != "none":
        raise malformed("options of a call")
    c["next"] = [_read_relay(r) for _ in range(_read_relays(r))]
    c["passed"] = [r.take(16) for _ in range(_read_relays(r))]
    if len(c["next"]) + len(c["passed"]) > RELAYS_MAX:
        raise too_large("relays")
    c["of"] = r.take(16) if o & 4 else None
    c["in_order"] = r.text(64) if o & 8 else None
    if c["in_order"] == "":
        raise malformed("name of an order")
    if c["of"] == c["parcel"]:
        raise malformed("id of a parcel")
    if not c["target"]:
        raise malformed("target")
    if c["name"] in (b"", b".", b"..") or b"/" in c["name"]:
        raise malformed("name")
    return c


def _write_parcel(c):
    body = c["parcel"] + pack("QI", c["bytes"], c["life_s"])
    body += string(c["target"].encode()) + string(c["name"]) + encode_digest(c["digest"])
    body += pack("B", len(c["next"])) + b"".join(string(url.encode()) for url in c["next"])
    body += pack("B", len(c["passed"])) + b"".join(c["passed"]) + (c["of"] or b"")
    body += string(c["in_order"].encode()) if c["in_order"] else b""
    options = c["overwrite"] | c["tree"] << 1 | (c["of"] is not None) << 2
    return options | (c["in_order"] is not None) << 3 | c["ahead"] << 4, body


def _read_parcel_name(r, o):
    c = {"parcel": r.take(16), "user": r.text(255) if o else None}
    if c["user"] == "":
        raise malformed("user of a parcel")
    return c


def _write_parcel_name(c):
    return c["user"] is not None, c["parcel"] + (string(c["user"].encode()) if c["user"] else b"")


def _write_parcel_end(c):
    options, name = _write_parcel_name(c)
    return options, name + pack("B", PARCEL_ENDS.index(c["end"]))


# Files that several members of a group write (groups.md).


def _read_fragments(r, most):
    kind, count = read_digest_kind(r), r.number("H")
    if count > most:
        raise too_large("number of fragments")
    if (count == 0) != (kind == "none"):
        raise malformed("digest kind")
    fragments, last = [], 0
    for _ in range(count):
        start, end = r.number("Q"), r.number("Q")
        if start < last or end <= start:
            raise malformed("order of fragments")
        fragments.append((start, end, read_state(r, kind, start)))
        last = end
    return fragments


def _write_fragments(fragments):
    sizes = {8: "crc64nvme", 32: "blake3", 64: "blake3"}
    kind = sizes[len(fragments[0][2])] if fragments else "none"
    each = b"".join(pack("QQ", start, end) + state for start, end, state in fragments)
    return pack("BH", NAMES[kind], len(fragments)) + each


def _read_open_stripes(r, o):
    c = {"overwrite": bool(o & 1), "tag": r.take(16), "length": r.bounded("Q", 1, U64, "length")}
    c["digest"], c["block_size"] = read_digest_kind(r, False), read_block_size(r)
    c["resume"] = RESUMES[r.bounded("B", 0, 2, "resume")]
    c["mode"] = read_mode(r, o & 2)
    c["mtime_ns"] = r.number("q")
    if not o & 4:
        if c["mtime_ns"]:
            raise malformed("time")
        c["mtime_ns"] = None
    c["path"], c["name"] = r.path(), r.path()
    if c["name"] in (b".", b"..") or b"/" in c["name"]:
        raise malformed("name")
    return c


def _write_open_stripes(c):
    options = c["overwrite"] | (c["mode"] is not None) << 1 | (c["mtime_ns"] is not None) << 2
    body = c["tag"] + pack("QBI", c["length"], NAMES[c["digest"]], c["block_size"])
    body += pack("BHq", RESUMES.index(c["resume"]), c["mode"] or 0, c["mtime_ns"] or 0)
    return options, body + string(c["path"]) + string(c["name"])


def _read_take_in(r, _):
    c = {"target": r.number("Q"), "fragments": _read_fragments(r, 64)}
    if not c["fragments"] or sum(end - start for start, end, _ in c["fragments"]) > 256 << 20:
        raise malformed("fragments")
    return c


def _read_publish_stripes(r, _):
    c = {"target": r.number("Q"), "digest": read_digest(r)}
    if c["digest"][0] == "none":
        raise malformed("digest kind")
    return c


def _read_stripes(r):
    a = {"target": r.number("Q"), "file": r.number("Q"), "block_size": read_block_size(r), "path": r.path()}
    a["held"] = _read_fragments(r, 512)
    return a


def _write_stripes(a):
    fixed = pack("QQI", a["target"], a["file"], a["block_size"])
    return fixed + string(a["path"]) + _write_fragments(a["held"])


CALLS = {
    0x01: ("stat", 1, lambda r, o: {"follow": bool(o), "path": r.path()}, lambda c: (c["follow"], string(c["path"]))),
    0x02: ("list", 0,
           lambda r, _: {"entries_max": r.bounded("I", 1, 0xFFFFFFFF, "entries"), "path": r.path(),
                         "cursor": r.string(4096)},
           lambda c: (0, pack("I", c["entries_max"]) + string(c["path"]) + string(c["cursor"]))),
    0x03: ("make-directory", 3,
           lambda r, o: {"parents": bool(o & 1), "mode": read_mode(r, bool(o & 2)), "path": r.path()},
           lambda c: (c["parents"] | (c["mode"] is not None) << 1, pack("H", c["mode"] or 0) + string(c["path"]))),
    0x04: _one_path("remove-file"),
    0x05: _one_path("remove-directory"),
    0x06: _one_path("remove-tree"),
    0x07: _two_paths("rename"),
    0x08: _two_paths("copy"),
    0x09: ("link", 0, lambda r, _: {"existing": r.path(), "path": r.path()},
           lambda c: (0, string(c["existing"]) + string(c["path"]))),
    0x0A: ("symlink", 0, lambda r, _: {"target": r.path(), "path": r.path()},
           lambda c: (0, string(c["target"]) + string(c["path"]))),
    0x0B: _one_path("read-link"),
    0x0C: ("set-mode", 0, lambda r, _: {"mode": read_mode(r), "path": r.path()},
           lambda c: (0, pack("H", c["mode"]) + string(c["path"]))),
    0x0D: ("set-times", 7,
           lambda r, o: {"follow": bool(o & 1), "atime_ns": _optional(r, "q", o & 2, "time"),
                         "mtime_ns": _optional(r, "q", o & 4, "time"), "path": r.path()},
           lambda c: (c["follow"] | (c["atime_ns"] is not None) << 1 | (c["mtime_ns"] is not None) << 2,
                      pack("qq", c["atime_ns"] or 0, c["mtime_ns"] or 0) + string(c["path"]))),
    0x0E: ("set-owner", 7,
           lambda r, o: {"follow": bool(o & 1), "uid": _optional(r, "I", o & 2, "owner"),
                         "gid": _optional(r, "I", o & 4, "owner"), "path": r.path()},
           lambda c: (c["follow"] | (c["uid"] is not None) << 1 | (c["gid"] is not None) << 2,
                      pack("II", c["uid"] or 0, c["gid"] or 0) + string(c["path"]))),
    0x0F: ("truncate", 0, lambda r, _: {"length": r.number("Q"), "path": r.path()},
           lambda c: (0, pack("Q", c["length"]) + string(c["path"]))),
    0x10: _one_path("space"),
    0x11: ("checksum", 2, _read_checksum,
           lambda c: ((c["length"] is not None) << 1,
                      pack("QQB", c["offset"], c["length"] or 0, NAMES[c["digest"]]) + string(c["path"]))),
    0x12: _one_path("sync"),
    0x13: ("signatures", 0, _read_signatures,
           lambda c: (0, pack("BIQI", NAMES[c["digest"]], c["block_size"], c["first"], c["count"])
                      + string(c["path"]))),
    0x14: ("seed", 3, _read_seed, _write_seed),
    0x15: ("list-partial", 0, _read_list_partial, lambda c: (0, string(c["path"]) + string(c["after"]))),
    0x16: ("remove-partial", 2, _read_remove_partial,
           lambda c: ((c["unchanged_since_ns"] is not None) << 1,
                      pack("q", c["unchanged_since_ns"] or 0) + string(c["path"]))),
    0x17: ("look-up", 0, _read_look_up, lambda c: (0, string(c["path"]) + _write_accounts(c["accounts"]))),
    0x18: _one_path("settable-owners"),
    0x19: ("delegate", 1, _read_delegate, _write_delegate),
    0x1A: ("start-copy", 7, _read_order, _write_order),
    0x1B: ("copy-status", 0, lambda r, _: {"copy": r.take(16)}, lambda c: (0, c["copy"])),
    0x1C: ("cancel-copy", 0, lambda r, _: {"copy": r.take(16)}, lambda c: (0, c["copy"])),
    0x1D: ("delegate-tree", 1, _read_delegate_tree, _write_delegate_tree),
    0x1E: ("start-tree", 31, _read_tree_order, _write_tree_order),
    0x1F: ("tree-status", 3, _read_tree_query, _write_tree_query),
    0x31: ("open-parcel", 31, _read_parcel, _write_parcel),
    0x32: ("parcel-status", 1, _read_parcel_name, _write_parcel_name),
    0x33: ("end-parcel", 1,
           lambda r, o: {**_read_parcel_name(r, o), "end": PARCEL_ENDS[r.bounded("B", 0, 1, "end of a parcel")]},
           _write_parcel_end),
    0x34: ("list-parcels", 1,
           lambda r, o: {"all_users": bool(o), "states": r.bounded("B", 1, 63, "states of parcels"),
                         "from": r.number("Q")},
           lambda c: (c["all_users"], pack("BQ", c["states"], c["from"]))),
    0x30: _one_path("group"),
    0x38: ("open-stripes", 7, _read_open_stripes, _write_open_stripes),
    0x39: ("take-in", 0, _read_take_in,
           lambda c: (0, pack("Q", c["target"]) + _write_fragments(c["fragments"]))),
    0x3A: ("publish-stripes", 0, _read_publish_stripes,
           lambda c: (0, pack("Q", c["target"]) + encode_digest(c["digest"]))),
    0x3B: ("close-stripes", 1, lambda r, o: {"target": r.number("Q"), "discard": bool(o)},
           lambda c: (c["discard"], pack("Q", c["target"]))),
    0x20: ("open", 0xFF, _read_open, _write_open),
    0x21: ("read", 1, lambda r, o: {"locked": bool(o), "handle": _handle(r), "extents": _extents(r)},
           lambda c: (c["locked"], pack("I", c["handle"]) + _write_extents(c["extents"]))),
    0x22: ("write", 1, _read_write,
           lambda c: (c["locked"], pack("I", c["handle"]) + _write_extents(c["extents"]) + c["bytes"])),
    0x23: ("append", 1, lambda r, o: {"locked": bool(o), "handle": _handle(r), "bytes": _append_data(r, o)},
           lambda c: (c["locked"], pack("II", c["handle"], len(c["bytes"])) + c["bytes"])),
    0x24: ("flush", 1, lambda r, o: {"data_only": bool(o), "handle": _handle(r)},
           lambda c: (c["data_only"], pack("I", c["handle"]))),
    0x25: ("set-length", 1, lambda r, o: {"locked": bool(o), "handle": _handle(r), "length": r.number("Q")},
           lambda c: (c["locked"], pack("IQ", c["handle"], c["length"]))),
    0x26: ("lock", 3, *_locking(
        "lock",
        lambda r, o: {"exclusive": bool(o & 1), "lease_s": r.bounded("I", 1, 3600, "lease"),
                      "wait_ms": r.bounded("I", 0, 10_000, "wait")},
        lambda c: pack("II", c["lease_s"], c["wait_ms"]))),
    0x27: ("unlock", 2, *_locking("unlock", lambda r, o: {}, lambda c: b"")),
    0x28: ("test-lock", 3, *_locking("test-lock", lambda r, o: {"exclusive": bool(o & 1)}, lambda c: b"")),
    0x29: ("renew", 0, lambda r, _: {"handle": _handle(r), "holding": r.number("Q")},
           lambda c: (0, pack("IQ", c["handle"], c["holding"]))),
    0x2A: ("stat-handle", 0, lambda r, _: {"handle": _handle(r)}, lambda c: (0, pack("I", c["handle"]))),
    0x2B: ("close", 0, lambda r, _: {"handle": _handle(r)}, lambda c: (0, pack("I", c["handle"]))),
}  # fmt: skip
OPERATION = {entry[0]: number for number, entry in CALLS.items()}


def read_call(r):
    """The message of XPATHM without its name; one of another version keeps its bytes (P-14)."""
    name = read_name(r)
    operation = r.bounded("B", 1, 255, "operation")
    if operation not in CALLS:
        return {**name, "unknown_operation": operation, "rest": r.rest()}
    call, allowed, read, _ = CALLS[operation]
    options = r.bounded("B", 0, 255, "options")
    if options & ~allowed:
        raise malformed("options of a call")
    return {**name, "call": call, **read(r, options)}


def write_call(c):
    """The body of XPATHM."""
    head = pack("HI", c["slot"], c["sequence"])
    if "unknown_operation" in c:
        return head + pack("B", c["unknown_operation"]) + c["rest"]
    number = OPERATION[c["call"]]
    options, body = CALLS[number][3](c)
    return head + pack("BB", number, options) + body


# Answers.

_ATTRIBUTES = (
    ("uid", "I"), ("gid", "I"), ("size", "Q"), ("allocated", "Q"), ("links", "Q"), ("device", "Q"), ("inode", "Q"),
    ("atime_ns", "q"), ("mtime_ns", "q"), ("ctime_ns", "q"),
)  # fmt: skip


def read_attributes(r):
    """What is known of a file."""
    a = {"kind": KINDS[r.bounded("B", 0, len(KINDS) - 1, "kind of a file")], "mode": read_mode(r)}
    return {**a, **{name: r.number(form) for name, form in _ATTRIBUTES}}


def write_attributes(a):
    """The bytes of attributes."""
    head = pack("BH", KINDS.index(a["kind"]), a["mode"])
    return head + b"".join(pack(form, a[name]) for name, form in _ATTRIBUTES)


def _name(r):
    name = r.path()
    if name in (b"", b".", b"..") or b"/" in name:
        raise malformed("name of an entry")
    return name


def _read_entries(r):
    cursor = r.string(4096, "cursor")
    entries = []
    for _ in range(r.number("I")):
        attributes, name = read_attributes(r), _name(r)
        entries.append({"attributes": attributes, "name": name})
    return {"cursor": cursor or None, "entries": entries}


def _write_entries(a):
    body = string(a["cursor"] or b"") + pack("I", len(a["entries"]))
    return body + b"".join(write_attributes(e["attributes"]) + string(e["name"]) for e in a["entries"])


def _read_signed(r):
    a = {"tag": r.take(16), "length": r.number("Q"), "first": r.number("Q"), "digest": read_digest_kind(r)}
    count = r.number("I")
    if count > 1024:
        raise too_large("number of blocks")
    if a["first"] + count > U64 + 1:
        raise malformed("number of a block")
    a["blocks"] = []
    for i in range(count):
        b = {"weak": r.number("I"), "strong": r.take(16)}
        b["state"] = read_state(r, a["digest"], a["first"] + i)
        a["blocks"].append(b)
    return a


def _write_signed(a):
    body = a["tag"] + pack("QQBI", a["length"], a["first"], NAMES[a["digest"]], len(a["blocks"]))
    return body + b"".join(pack("I", b["weak"]) + b["strong"] + b["state"] for b in a["blocks"])


def _read_partial(r):
    more, files = bool(r.bounded("B", 0, 1, "options of an answer")), []
    for _ in range(r.number("I")):
        known = r.bounded("B", 0, 1, "options of an entry")
        f = {"arrived": r.number("Q"), "length": r.number("Q"), "allocated": r.number("Q")}
        if f["length"] and not known:
            raise malformed("length")
        f["length"] = f["length"] if known else None
        files.append({**f, "mtime_ns": r.number("q"), "name": _name(r)})
    if more and not files:
        raise malformed("count of entries")
    return {"more": more, "files": files}


def _write_partial(a):
    body = pack("BI", a["more"], len(a["files"]))
    for f in a["files"]:
        body += pack("BQQQq", f["length"] is not None, f["arrived"], f["length"] or 0, f["allocated"], f["mtime_ns"])
        body += string(f["name"])
    return body


def _read_opened(r):
    a = {"handle": _handle(r), "created": bool(r.bounded("B", 0, 1, "made by this call")), "run": r.number("Q")}
    a["identity"] = {"device": r.number("Q"), "inode": r.number("Q"), "born_ns": r.number("q")}
    return {**a, "attributes": read_attributes(r)}


def _write_opened(a):
    identity = a["identity"]
    body = pack("IBQ", a["handle"], a["created"], a["run"])
    body += pack("QQq", identity["device"], identity["inode"], identity["born_ns"])
    return body + write_attributes(a["attributes"])


def _read_data(r):
    count = r.bounded("H", 1, 0xFFFF, "number of lengths")
    if count > 256:
        raise too_large("number of lengths")
    lengths = [r.number("I") for _ in range(count)]
    if sum(lengths) > DATA_MAX:
        raise too_large("length of data")
    return {"lengths": lengths, "bytes": r.take(sum(lengths))}


def _read_in_the_way(r):
    bits, offset, length = r.bounded("B", 0, 7, "bits of a lock"), r.number("Q"), r.number("Q")
    if not bits & 1 and (bits or offset or length):
        raise malformed("lock in the way")
    if not bits & 1:
        return {"lock": None}
    given = bool(bits & 4)
    if (given and (length == 0 or offset + length > U64)) or (not given and length):
        raise malformed("range of a lock")
    return {"lock": {"exclusive": bool(bits & 2), "offset": offset, "length": length if given else None}}


def _write_in_the_way(a):
    lock = a["lock"]
    if lock is None:
        return pack("BQQ", 0, 0, 0)
    given = lock["length"] is not None
    return pack("BQQ", 1 | lock["exclusive"] << 1 | given << 2, lock["offset"], lock["length"] or 0)


def _read_copy_status(r):
    a = {"state": COPY_STATES[r.bounded("B", 0, 4, "state of a copy")]}
    options = r.bounded("B", 0, 7, "options of an answer")
    a["bytes"] = r.number("Q")
    a["bytes_total"] = _optional(r, "Q", options & 1, "length")
    a["resumed_bytes"], a["channels"], a["elapsed_ms"] = r.number("Q"), r.number("H"), r.number("Q")
    a["mtime_ns"] = _optional(r, "q", options & 2, "time")
    a["digest"], a["target"] = read_digest(r), r.path()
    failed = a["state"] in ("unreachable", "failed")
    a["fault"], a["fault_there"] = read_fault(r) if failed else None, bool(options & 4)
    if a["fault_there"] and not failed:
        raise malformed("state of a copy")
    return a


def _write_copy_status(a):
    options = (a["bytes_total"] is not None) | (a["mtime_ns"] is not None) << 1 | a["fault_there"] << 2
    body = pack("BBQQ", COPY_STATES.index(a["state"]), options, a["bytes"], a["bytes_total"] or 0)
    body += pack("QHQq", a["resumed_bytes"], a["channels"], a["elapsed_ms"], a["mtime_ns"] or 0)
    body += encode_digest(a["digest"]) + string(a["target"])
    return body + (encode_fault(a["fault"]) if a["fault"] else b"")


STEPS = ("copy", "delete", "rename", "replace", "set")
QUESTIONS = ("named-like-source", "nothing-in-common", "root", "share")


def _there(r):
    there = r.bounded("B", 0, 4, "options of news")
    if there not in (0, 4):
        raise malformed("options of news")
    return bool(there)


def _read_question(r):
    kind = QUESTIONS[r.bounded("B", 0, 3, "question")]
    n = {"question": kind, "names": r.number("Q"), "names_at_target": r.number("Q"), "name": r.path()}
    is_named = kind == "named-like-source"
    has_all = n["names_at_target"] and kind != "share"
    if bool(n["name"]) != is_named or has_all or (is_named and n["names"]):
        raise malformed("question")
    return n


def _read_news(r):
    kind = r.bounded("B", 0, 5, "news")
    if kind == 0:
        return {"news": "file", "path": r.path(), "bytes": r.number("Q"), "digest": read_digest(r)}
    if kind == 1:
        return {"news": "failed", "path": r.path(), "fault_there": _there(r), "fault": read_fault(r)}
    if kind == 2:
        return {"news": "warning", "fault_there": _there(r), "fault": read_fault(r)}
    if kind == 3:
        return {"news": "step", "step": STEPS[r.bounded("B", 0, 4, "step")], "path": r.path(), "from": r.path()}
    if kind == 5:
        return {"news": "question", **_read_question(r)}
    n = {"news": "removal", "names": r.number("Q"), "names_at_target": r.number("Q")}
    count = r.number("B")
    if count > 5:
        raise too_large("count of examples")
    return {**n, "examples": [r.path() for _ in range(count)]}


def _write_news(n):
    kind = n["news"]
    if kind == "file":
        return b"\0" + string(n["path"]) + pack("Q", n["bytes"]) + encode_digest(n["digest"])
    if kind == "failed":
        return b"\1" + string(n["path"]) + pack("B", n["fault_there"] << 2) + encode_fault(n["fault"])
    if kind == "warning":
        return b"\2" + pack("B", n["fault_there"] << 2) + encode_fault(n["fault"])
    if kind == "step":
        return b"\3" + pack("B", STEPS.index(n["step"])) + string(n["path"]) + string(n["from"])
    numbers = pack("QQ", n["names"], n["names_at_target"])
    if kind == "question":
        return b"\5" + pack("B", QUESTIONS.index(n["question"])) + numbers + string(n["name"])
    return b"\4" + numbers + pack("B", len(n["examples"])) + b"".join(map(string, n["examples"]))


TOTALS = ("moved", "resumed", "counted")


def _read_tree_status(r):
    a = {"state": COPY_STATES[r.bounded("B", 0, 4, "state of a copy")]}
    options = r.bounded("B", 0, 7, "options of an answer")
    for name in TOTALS:
        a[name] = [r.number("Q") for _ in range(4)]
    a["counts"] = [r.number("Q") for _ in range(12)]
    a["channels"], a["elapsed_ms"] = r.number("H"), r.number("Q")
    failed = a["state"] in ("unreachable", "failed")
    a["fault"], a["fault_there"] = read_fault(r) if failed else None, bool(options & 4)
    if a["fault_there"] and not failed:
        raise malformed("state of a copy")
    a["is_counted"], a["more"], a["first"] = bool(options & 1), bool(options & 2), r.number("Q")
    return {**a, "list": [_read_news(r) for _ in range(r.number("H"))]}


def _write_tree_status(a):
    options = a["is_counted"] | a["more"] << 1 | a["fault_there"] << 2
    body = pack("BB", COPY_STATES.index(a["state"]), options)
    numbers = [n for name in TOTALS for n in a[name]] + a["counts"]
    body += pack("24QHQ", *numbers, a["channels"], a["elapsed_ms"])
    body += encode_fault(a["fault"]) if a["fault"] else b""
    return body + pack("QH", a["first"], len(a["list"])) + b"".join(map(_write_news, a["list"]))


PARCEL_STATES = ("arriving", "held", "delivering", "delivered", "dead", "cancelled")


def _read_parcel_status(r):
    a = {"state": PARCEL_STATES[r.bounded("B", 0, 5, "state of a parcel")]}
    options = r.bounded("B", 0, 15, "options of an answer")
    a["bytes"], a["arrived"], a["delivered"] = r.number("Q"), r.number("Q"), r.number("Q")
    a["attempts"], a["age_s"] = r.number("I"), r.number("Q")
    a["next_ms"] = _optional(r, "Q", options & 1, "time")
    a["digest"], a["target"] = read_digest(r), r.text(3 * 4096 + 512)
    a["fault"], a["fault_there"] = read_fault(r) if options & 2 else None, bool(options & 4)
    a["holder"] = _read_relay(r) if options & 8 else None
    lacks = a["fault"] is None and (a["fault_there"] or a["state"] == "dead")
    if lacks or not a["target"] or max(a["arrived"], a["delivered"]) > a["bytes"]:
        raise malformed("state of a parcel")
    return a


def _write_parcel_status(a):
    options = (a["next_ms"] is not None) | (a["fault"] is not None) << 1 | a["fault_there"] << 2
    options |= (a["holder"] is not None) << 3
    body = pack("BBQQQ", PARCEL_STATES.index(a["state"]), options, a["bytes"], a["arrived"], a["delivered"])
    body += pack("IQQ", a["attempts"], a["age_s"], a["next_ms"] or 0)
    body += encode_digest(a["digest"]) + string(a["target"].encode())
    body += encode_fault(a["fault"]) if a["fault"] else b""
    return body + (string(a["holder"].encode()) if a["holder"] else b"")


def _read_parcels(r):
    options = r.bounded("B", 0, 1, "options of an answer")
    a, count = {"next": _optional(r, "Q", options & 1, "number of a parcel")}, r.number("H")
    a["parcels"] = []
    for _ in range(count):
        name = _read_parcel_name(r, 1)
        a["parcels"].append({**name, **_read_parcel_status(r)})
    return a


def _write_parcels(a):
    body = pack("BQH", a["next"] is not None, a["next"] or 0, len(a["parcels"]))
    return body + b"".join(_write_parcel_name(p)[1] + _write_parcel_status(p) for p in a["parcels"])


def _read_group(r):
    a = {"storage": {0: "shared"}[r.bounded("B", 0, 0, "storage of a group")]}
    count = r.number("B")
    if count > 64:
        raise too_large("count of members")
    a["members"] = [{"key": r.take(32), "address": r.text(261)} for _ in range(count)]
    if count < 2 or len({m["key"] for m in a["members"]}) < count:  # G-2
        raise malformed("members of a group")
    return a


def _write_group(a):
    members = b"".join(m["key"] + string(m["address"].encode()) for m in a["members"])
    return pack("BB", 0, len(a["members"])) + members


_SPACE = ("total", "free", "available", "files", "files_free")
CONTENTS = {
    0x00: ("fault", lambda r: {"fault": read_fault(r)}, lambda a: encode_fault(a["fault"])),
    0x01: ("done", lambda r: {}, lambda a: b""),
    0x02: ("attributes", lambda r: {"attributes": read_attributes(r)}, lambda a: write_attributes(a["attributes"])),
    0x03: ("entries", _read_entries, _write_entries),
    0x04: ("target", lambda r: {"target": r.path()}, lambda a: string(a["target"])),
    0x05: ("space", lambda r: {n: r.number("Q") for n in _SPACE}, lambda a: pack("5Q", *(a[n] for n in _SPACE))),
    0x06: ("digest", lambda r: {"length": r.number("Q"), "digest": read_checksum(r)},
           lambda a: pack("Q", a["length"]) + encode_digest(a["digest"])),
    0x07: ("removed", lambda r: {"entries": r.number("Q")}, lambda a: pack("Q", a["entries"])),
    0x08: ("copied", lambda r: {"bytes": r.number("Q")}, lambda a: pack("Q", a["bytes"])),
    0x09: ("signatures", _read_signed, _write_signed),
    0x0A: ("partial", _read_partial, _write_partial),
    0x0B: ("accounts", lambda r: {"accounts": _read_accounts(r)}, lambda a: _write_accounts(a["accounts"])),
    0x0C: ("capability", lambda r: {"capability": r.text(256)}, lambda a: string(a["capability"].encode())),
    0x0D: ("copy-status", _read_copy_status, _write_copy_status),
    0x0E: ("tree-status", _read_tree_status, _write_tree_status),
    0x0F: ("parcel-status", _read_parcel_status, _write_parcel_status),
    0x10: ("parcels", _read_parcels, _write_parcels),
    0x30: ("group", _read_group, _write_group),
    0x31: ("stripes", _read_stripes, _write_stripes),
    0x20: ("opened", _read_opened, _write_opened),
    0x21: ("data", _read_data,
           lambda a: pack("H", len(a["lengths"])) + b"".join(pack("I", n) for n in a["lengths"]) + a["bytes"]),
    0x22: ("appended", lambda r: {"offset": r.number("Q"), "length": r.number("I")},
           lambda a: pack("QI", a["offset"], a["length"])),
    0x23: ("held", lambda r: {"holding": r.number("Q")}, lambda a: pack("Q", a["holding"])),
    0x24: ("in-the-way", _read_in_the_way, _write_in_the_way),
}  # fmt: skip
CONTENT = {entry[0]: number for number, entry in CONTENTS.items()}


def read_answer(r, last):
    """The message of ANSWER."""
    name, part, content = read_name(r), r.number("I"), r.number("B")
    if content not in CONTENTS:
        raise malformed("content of an answer")
    answer, read, _ = CONTENTS[content]
    many = answer == "entries"
    if (not last and not many) or (part and not many and answer != "fault"):  # P-6
        raise malformed("part of an answer")
    a = {**name, "part": part, "last": last, "answer": answer, **read(r)}
    if many and not last and (a["cursor"] is None or not a["entries"]):
        raise malformed("part of an answer")
    return a


def write_answer(a):
    """The body of ANSWER."""
    number = CONTENT[a["answer"]]
    return pack("HIIB", a["slot"], a["sequence"], a["part"], number) + CONTENTS[number][2](a)


def unsupported(operation):
    """The fault of a call that isn't offered (P-14)."""
    return Fault("unsupported", operation, "this side doesn't offer the call")
