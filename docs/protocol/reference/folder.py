"""Where bytes rest: files with journals, and what packs are made of and carried out to.

A transfer that isn't finished is `.NAME.xdfs-part` and its journal `.NAME.xdfs-journal` beside the target; lists leave
both out (P-13).
"""

import hashlib
import json
import os
import shutil
import stat
import time

import digests
import packs
from calls import KINDS
from peer import as_fault
from wire import Fault

GRAIN_NS = 20_000_000  # of the clock that stamps files
PART, JOURNAL = b".xdfs-part", b".xdfs-journal"


def boot():
    """What tells one start of this machine from another; never the same where that can't be known."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return os.urandom(8).hex()


def is_hidden(name):
    """Whether a name is of a transfer that isn't finished."""
    return name.startswith(b".") and name.endswith((PART, JOURNAL))


def sync_path(path):
    """Makes a file or directory durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(path):
    """Makes every file and directory at and below a path durable, and its name."""
    for at, _, files in os.walk(path):
        for name in files:
            if stat.S_ISREG(os.lstat(os.path.join(at, name)).st_mode):
                sync_path(os.path.join(at, name))
        sync_path(at)
    if not os.path.isdir(path):
        sync_path(path)
    sync_path(os.path.dirname(path))


def attributes(path, follow=False):
    """The attributes of what stands at a path."""
    s = os.stat(path, follow_symlinks=follow)
    tests = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK, stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISBLK, stat.S_ISCHR)
    kind = next((KINDS[i] for i, test in enumerate(tests) if test(s.st_mode)), "other")
    return {
        "kind": kind, "mode": stat.S_IMODE(s.st_mode), "uid": s.st_uid, "gid": s.st_gid, "size": s.st_size,
        "allocated": s.st_blocks * 512, "links": s.st_nlink, "device": s.st_dev, "inode": s.st_ino,
        "atime_ns": s.st_atime_ns, "mtime_ns": s.st_mtime_ns, "ctime_ns": s.st_ctime_ns,
    }  # fmt: skip


class FileSource:
    """A file that is sent, or a part of it."""

    def __init__(self, path, offset=0, length=None):
        self.path, self.label = path, path
        if not stat.S_ISREG(os.stat(path).st_mode):
            kind = "is-a-directory" if os.path.isdir(path) else "not-a-regular-file"
            raise Fault(kind, "open the source", "only files can be sent", path)
        self.fd = os.open(path, os.O_RDONLY)
        self.status = os.fstat(self.fd)
        while time.time_ns() - self.status.st_ctime_ns < GRAIN_NS:
            time.sleep(GRAIN_NS / 1e9)
            self.status = os.fstat(self.fd)
        size = self.status.st_size
        if offset > size:
            os.close(self.fd)
            raise Fault("offset-past-end", "open the source", f"it has {size} bytes", path)
        self.offset = offset
        self.length = size - offset if length is None else min(length, size - offset)
        self.sparse = self.status.st_blocks * 512 < size

    def tag(self):
        """The version of the source, and which part of it: 16 bytes."""
        s = self.status
        what = (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns, self.offset, self.length)
        return hashlib.sha256(repr(what).encode()).digest()[:16]

    def offer(self, frame, file, digest, path=b"", **flags):
        """The fields of XFTSMU or OFFER for this source."""
        return {
            "frame": frame, "file": file, "length": self.length, "tag": self.tag(), "pack": False,
            "mode": stat.S_IMODE(self.status.st_mode) & 0o777, "mtime_ns": self.status.st_mtime_ns,
            "digest": digest, "path": path, "name": os.path.basename(self.path), "sparse": self.sparse,
            "overwrite": False, "resume": "never", "relaxed": False, "dry_run": False, **flags,
        }  # fmt: skip

    def read(self, start, length):
        """Bytes of a range of the transfer."""
        return os.pread(self.fd, length, self.offset + start)

    def changed(self):
        """Whether the source isn't any more what the offer told (X-25)."""
        now = os.fstat(self.fd)

        def version(s):
            ctime = s.st_ctime_ns if now.st_nlink else 0
            return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, ctime

        return version(now) != version(self.status)

    def close(self):
        """Closes the file."""
        os.close(self.fd)


def pack_offer(frame, file, length, digest="none", path=b"", overwrite=False):
    """The fields of XFTSMU or OFFER for a pack (K-1)."""
    return {
        "frame": frame, "file": file, "length": length, "tag": bytes(16), "mode": None, "mtime_ns": None,
        "digest": digest, "path": path, "name": b"", "pack": True, "sparse": False,
        "overwrite": overwrite, "resume": "never", "relaxed": False, "dry_run": False,
    }  # fmt: skip


class FileSink:
    """A file that comes in: a partial file and a journal, until it is published."""

    def __init__(self, path, offer):
        self.path, self.label, self.offer = path, path[:1024], offer
        folder, name = os.path.split(path)
        if os.path.isdir(path):
            raise Fault("is-a-directory", "open the target", "a directory stands there", path)
        if os.path.lexists(path) and not offer["overwrite"]:
            raise Fault("already-exists", "open the target", "it exists already", path)
        if not os.path.isdir(folder or b"."):
            raise Fault("not-found", "open the target", "its directory isn't there", path)
        self.part = os.path.join(folder, b"." + name + PART)
        self.journal = os.path.join(folder, b"." + name + JOURNAL)
        self.block, self.fragments, self.fd = None, [], None
        if offer["dry_run"]:
            return
        if not self._resume():
            self._remove()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        self.fd = os.open(self.part, flags, 0o600)
        if not self.fragments:
            os.ftruncate(self.fd, 0)

    def _version(self):
        o = self.offer
        return [o["tag"].hex(), o["length"], o["digest"]]

    def _resume(self):
        """Takes the durable ranges of an earlier attempt, if the journal is of this version (X-31)."""
        if self.offer["resume"] == "never" or not any(self.offer["tag"]) or self.offer["length"] is None:
            return False
        try:
            record = json.loads(open(self.journal, "rb").read())
            body = record["body"]
            if record["check"] != digests.crc32c(json.dumps(body).encode()) or body["version"] != self._version():
                return False
            if not os.path.exists(self.part):
                return False
        except (OSError, ValueError, KeyError, TypeError):
            return False
        self.block = body["block"]
        self.fragments = [(start, end, bytes.fromhex(state)) for start, end, state in body["ranges"]]
        if self.offer["resume"] == "verify" or body["boot"] != boot():
            self._verify()
        return bool(self.fragments)

    def _verify(self):
        """Reads again what the journal claims; what differs isn't claimed any more (X-43)."""
        kind = digests.NAMES[self.offer["digest"]]
        kept = []
        with open(self.part, "rb") as file:
            for start, end, state in self.fragments:
                data = os.pread(file.fileno(), end - start, start)
                if kind and len(data) == end - start and digests.state_of(kind, data, start) == state:
                    kept.append((start, end, state))
        self.fragments = kept
        self._record(kept)

    def write(self, start, data):
        """Writes bytes at their place."""
        os.pwrite(self.fd, data, start)

    def zeros(self, start, end):
        """Makes a range zeros, without storage if nothing was written there."""
        size = os.fstat(self.fd).st_size
        if start < size:
            os.pwrite(self.fd, bytes(min(end, size) - start), start)
        if end > size:
            os.ftruncate(self.fd, end)

    def checkpoint(self, states):
        """Makes what is held durable, then records it (X-30)."""
        if self.fd is None or not any(self.offer["tag"]) or self.offer["length"] is None:
            return
        os.fsync(self.fd)
        self._record(states.fragments())

    def _record(self, fragments):
        """Writes the journal anew, durably."""
        block, length = self.block or self.grid, self.offer["length"]
        ranges = []
        for start, end, state in fragments:
            if start % block == 0 and (end % block == 0 or end == length):
                ranges.append([start, end, state.hex()])
        body = {"version": self._version(), "boot": boot(), "block": block, "ranges": ranges}
        record = {"body": body, "check": digests.crc32c(json.dumps(body).encode())}
        with open(self.journal + b".new", "wb") as file:
            file.write(json.dumps(record).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.journal + b".new", self.journal)
        sync_path(os.path.dirname(self.path) or b".")

    grid = 1024  # the block size of this transfer, set when ACCEPT is made

    def publish(self, length):
        """Durable, under its name, and the name durable too (X-28)."""
        offer = self.offer
        os.ftruncate(self.fd, length)
        if offer["mode"] is not None:
            os.fchmod(self.fd, offer["mode"] & 0o777)
        if offer["mtime_ns"] is not None:
            os.utime(self.fd, ns=(offer["mtime_ns"], offer["mtime_ns"]))
        os.fsync(self.fd)
        if offer["overwrite"]:
            os.replace(self.part, self.path)
        else:
            os.link(self.part, self.path)
        self._remove()
        sync_path(os.path.dirname(self.path) or b".")
        return []

    def _remove(self):
        for path in (self.part, self.journal):
            if os.path.lexists(path):
                os.unlink(path)

    def discard(self):
        """Throws away what came (X-27)."""
        if self.fd is not None:
            self._remove()

    def close(self):
        """Closes the partial file; it stays."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class PackSink:
    """A pack that comes in: held in memory, carried out when it is whole."""

    block, fragments, label = None, (), b""

    def __init__(self, carry_out, offer):
        if offer["length"] is None or not 0 < offer["length"] <= packs.PACK_MAX:
            raise Fault("protocol-violation", "receive a pack", "a pack has 1 byte to 4 MiB")
        self.fragments = []
        self.carry_out, self.data, self.offer = carry_out, bytearray(offer["length"]), offer

    def write(self, start, data):
        """Takes bytes."""
        self.data[start : start + len(data)] = data

    def zeros(self, start, end):
        """Zeros are there already."""
        self.data[start:end] = bytes(end - start)

    def checkpoint(self, states):
        """A pack isn't resumed."""

    def publish(self, _length):
        """Carries the entries out; gives the runs of those that failed."""
        return packs.runs_of(self.carry_out(bytes(self.data), self.offer["overwrite"]))

    def discard(self):
        """Forgets it."""

    close = discard


def _beneath(base, path):
    """The place of an entry; no symbolic link may stand between the directory and it (K-6)."""
    names = [name for name in path.split(b"/") if name]
    at = base
    for name in names[:-1]:
        at = os.path.join(at, name)
        if os.path.islink(at):
            raise Fault("path-escape", "carry out an entry", "a link stands in the way", path)
        if not os.path.lexists(at):
            os.mkdir(at)
    return os.path.join(at, names[-1]) if names else at


def _make_way(path, replace):
    """What stands under the name of a file, link or pipe is replaced, or is a failure (K-7)."""
    if not os.path.lexists(path):
        return
    if os.path.isdir(path) and not os.path.islink(path):
        raise Fault("is-a-directory", "carry out an entry", "a directory stands there", path)
    if not replace:
        raise Fault("already-exists", "carry out an entry", "it exists already", path)


def _set_metadata(path, entry, link):
    if entry["mode"] is not None and not link:
        os.chmod(path, entry["mode"] & 0o777)
    for name, value in entry["xattrs"]:
        os.setxattr(path, name, value, follow_symlinks=False)
    if entry["mtime_ns"] is not None or entry["atime_ns"] is not None:
        status = os.lstat(path)
        read = status.st_atime_ns if entry["atime_ns"] is None else entry["atime_ns"]
        changed = status.st_mtime_ns if entry["mtime_ns"] is None else entry["mtime_ns"]
        os.utime(path, ns=(read, changed), follow_symlinks=False)


def carry_out_entry(base, entry, replace):
    """Makes one entry, as a whole or not at all (K-4)."""
    path, kind = _beneath(base, entry["path"]), entry["kind"]
    if kind == "directory":
        if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
            raise Fault("not-a-directory", "carry out an entry", "something else stands there", path)
        os.makedirs(path, exist_ok=True)
        _set_metadata(path, entry, False)
        return
    if kind == "attributes":
        _set_metadata(path, entry, os.path.islink(path))
        return
    if kind in ("large", "failed"):
        raise Fault("invalid-argument", "carry out an entry", "only answers have such an entry", path)
    _make_way(path, replace)
    new = os.path.join(os.path.dirname(path), b"." + os.path.basename(path) + PART)
    if os.path.lexists(new):
        os.unlink(new)
    if kind == "file":
        with open(new, "wb") as file:
            file.write(entry["bytes"])
    elif kind == "symbolic-link":
        os.symlink(entry["to"], new)
    elif kind == "hard-link":
        os.link(_beneath(base, entry["to"]), new, follow_symlinks=False)
    else:
        os.mkfifo(new)
    if kind != "hard-link":
        _set_metadata(new, entry, kind == "symbolic-link")
    os.replace(new, path)
    if os.path.lexists(new):  # a further name of the same file: replacing does nothing
        os.unlink(new)


def carry_out(base, data, replace):
    """Carries out a pack beneath a directory; gives (entry, fault) of what failed (K-3)."""
    entries, failures = packs.decode_entries(data), []
    os.makedirs(base, exist_ok=True)
    for index, entry in enumerate(entries):
        try:
            carry_out_entry(base, entry, replace)
        except (OSError, Fault) as error:
            failures.append((index, as_fault(error, "carry out an entry", entry["path"])))
    return failures


def entry_of(base, name, largest, wanted=None):
    """The entry of a pack for what stands at `name` beneath `base`."""
    path = os.path.join(base, name) if name else base
    try:
        status = os.lstat(path)
        mode = stat.S_IMODE(status.st_mode) & 0o777
        entry = {"path": name, "mode": mode, "mtime_ns": status.st_mtime_ns}
        if wanted and wanted["keep_read_times"]:
            entry["atime_ns"] = status.st_atime_ns
        if wanted and wanted["keep_owner"]:
            entry["owner"] = {"uid": status.st_uid, "gid": status.st_gid, "names": None}
        if stat.S_ISDIR(status.st_mode):
            return {**entry, "kind": "directory"}
        if stat.S_ISLNK(status.st_mode):
            return {**entry, "kind": "symbolic-link", "mode": None, "to": os.readlink(path)}
        if stat.S_ISFIFO(status.st_mode):
            return {**entry, "kind": "named-pipe"}
        if not stat.S_ISREG(status.st_mode):
            raise Fault("not-a-regular-file", "read an entry", "it can't be moved", path)
        if status.st_size > largest:
            return {"kind": "large", "path": name, "size": status.st_size}
        with open(path, "rb") as file:
            return {**entry, "kind": "file", "bytes": file.read()}
    except (OSError, Fault) as error:
        return {"kind": "failed", "path": name, "fault": as_fault(error, "read an entry", path)}


def answer_request(base, wanted):
    """The bytes of the pack that a request wants (K-8)."""
    data = b""
    for name in wanted["names"]:
        entry = packs.encode_entry(entry_of(base, name, min(wanted["file_bytes_max"], packs.PACK_MAX // 2), wanted))
        if data and len(data) + len(entry) > packs.PACK_MAX:
            break
        data += entry
    return data


def remove_tree(path):
    """Removes what stands at a path with all that is in it; gives the number of names."""
    if not os.path.isdir(path) or os.path.islink(path):
        os.unlink(path)
        return 1
    count = 1
    for _, directories, files in os.walk(path):
        count += len(directories) + len(files)
    shutil.rmtree(path)
    return count


def identity_of(status):
    """Device and number of a file, as an open tells them; when it was made isn't known here."""
    return {"device": status.st_dev, "inode": status.st_ino, "born_ns": 0}
