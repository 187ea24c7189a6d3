"""The reference client: `python3 client.py --help`.

Speaks to an acceptor without protection. It ends with 0, with 1 and the fault of the file or call, or with 75 when it
broke the session off as a test asked.
"""

import argparse
import os
import secrets
import socket
import sys
import time
from urllib.parse import unquote_to_bytes, urlsplit

import folder
import packs
import wire
from peer import Channel, Memory, PeerFault, Receiving, Session
from wire import Fault, encode, violation

PORT = 2799
PACK_BYTES = 512 << 10
SMALL = 256 << 10  # files up to this many bytes go into packs
LISTED = 1 << 20  # names that are taken of a directory (P-33)


def parse_url(url):
    """Host, port and path of `xdfs://host[:port]/path` (S-35)."""
    parts = urlsplit(url)
    if parts.scheme != "xdfs" or not parts.hostname:
        raise Fault("invalid-argument", "read the URL", f"{url} isn't xdfs://host[:port]/path")
    return parts.hostname, parts.port or PORT, unquote_to_bytes(parts.path).lstrip(b"/")


def join(base, *names):
    """Components with `/` between them."""
    return b"/".join(name for name in (base.rstrip(b"/"), *names) if name)


class Client(Session):
    """An initiator."""

    initiates = True

    def __init__(self, host, port, channels=2, block=0, strict=False, log=None):
        super().__init__(0, log)
        self.address, self.files, self.results, self.retry = (host, port), 0, {}, 0.0
        self.slot = {"sequence": 0, "parts": {}, "taken": 0, "frame": None, "kept": []}
        self.id = secrets.token_bytes(16)
        start = "strict" if strict else "elastic"
        ask = encode("SESSION", session=self.id, channels=channels, block_size=block, window=0, start=start, user="")
        sock, answer, rest = self.open_connection(ask)
        if answer["frame"] != "SESSION-OK":
            raise Fault("protocol-violation", "open the session", f"{answer['frame']} came")
        if not 1 <= answer["channels"] <= channels or (block and answer["block_size"] > block):
            raise violation("SESSION-OK names more than SESSION did")
        self.secret, self.block, self.allowed = answer["secret"], answer["block_size"], answer["channels"]
        self.next_index = 1
        self.add_channel(Channel(0, sock, rest))
        while len(self.channels) < self.allowed:
            self.open_channel()

    def open_connection(self, first):
        """A connection after HELLO and its first frame; gives it, the answer, and what followed."""
        sock = socket.create_connection(self.address, timeout=10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(wire.hello() + first)
        data, welcomed = b"", False
        while True:
            if not welcomed:
                opening = wire.decode_opening(data, 1)
                if opening:
                    message, length = opening
                    if message["message"] == "REFUSED":
                        raise message["fault"]
                    if message["version"] != 1 or message["features"]:
                        raise violation("WELCOME names what HELLO didn't")
                    data, welcomed = data[length:], True
            if welcomed:
                length = wire.frame_length(data)
                if length is not None and len(data) >= length:
                    frame = wire.decode(data[:length])
                    if frame["frame"] == "EXCEPTION":
                        sock.close()
                        raise frame["fault"]
                    return sock, frame, data[length:]
            more = sock.recv(65_536)
            if not more:
                raise Fault("connection-lost", "open the channel", "the peer closed it")
            data += more

    def open_channel(self):
        """Joins another channel (S-7)."""
        index = self.next_index
        self.next_index += 1
        ask = encode("JOIN", session=self.id, secret=self.secret, channel=index)
        sock, answer, rest = self.open_connection(ask)
        if answer["frame"] != "JOIN-OK":
            raise violation(f"{answer['frame']} came for JOIN")
        self.add_channel(Channel(index, sock, rest))

    def replace_channel(self):
        """Opens a channel in the place of one that broke or leaves (S-20); it's fine without."""
        self.retry = time.monotonic() + 0.3
        if self.staying() < self.allowed:
            try:
                self.open_channel()
            except (OSError, Fault) as error:
                self.log(f"no channel in its place: {error}")

    def staying(self):
        """How many channels are open and don't leave, which are those that count (S-23)."""
        return sum(1 for c in self.channels.values() if not (c.leave_sent or c.leave_read))

    def run(self, until):
        """Goes on until something is true, or the session ends."""
        while not until():
            if self.ended or not self.channels:
                raise Fault("connection-lost", "go on", "the session ended")
            if self.staying() < self.allowed and time.monotonic() > self.retry and not self.eoft_sent:
                self.replace_channel()
            self.pump()

    def close(self):
        """Ends the session in order (S-24, S-25)."""
        self.eoft_sent = True
        self.send(encode("EOFT"))
        self.run(lambda: self.eoft_read)

    # Calls.

    def call(self, name, **fields):
        """Makes a call about a path or a file; gives its answer, that of a list with all entries."""
        slot = self.slot
        sequence = slot["sequence"] + 1
        frame = encode("XPATHM", slot=0, sequence=sequence, call=name, **fields)
        slot.update(sequence=sequence, parts={}, taken=0, frame=frame, last=None)
        self.send(frame)
        self.run(lambda: slot["last"] is not None and slot["taken"] > slot["last"])
        slot["frame"] = None
        answer = slot["parts"][slot["last"]]
        if answer["answer"] == "fault":
            raise answer["fault"]
        if answer["answer"] == "entries":
            entries = [e for n in sorted(slot["parts"]) for e in slot["parts"][n]["entries"]]
            return {**answer, "entries": entries}
        return answer

    def answered(self, frame):
        """Takes a part of an answer."""
        slot, part = self.slot, frame["part"]
        if frame["slot"] or frame["sequence"] > slot["sequence"] or frame["sequence"] == 0:
            raise violation("an answer to a call that was not made")
        if frame["sequence"] < slot["sequence"] or part in slot["parts"]:
            return
        slot["parts"][part] = frame
        if frame["last"]:
            slot["last"] = part
        while slot["taken"] in slot["parts"]:
            slot["taken"] += 1
        if frame["answer"] in ("entries", "data", "signatures"):
            self.send(self.taken_frame())

    def taken_frame(self):
        """TAKEN for what has come without a gap."""
        slot = self.slot
        return encode("TAKEN", slot=0, sequence=slot["sequence"], parts=max(slot["taken"], 1), stop=False)

    def send_calls_again(self):
        """The call without a part, or the latest TAKEN (P-15)."""
        slot = self.slot
        if slot["frame"] and not slot["parts"]:
            self.send(slot["frame"])
        elif slot["taken"] and slot["parts"][0]["answer"] in ("entries", "data", "signatures"):
            self.send(self.taken_frame())

    def begin(self, channel, frame):
        """OFFER and ANSWER."""
        if frame["frame"] == "ANSWER":
            self.answered(frame)
        elif frame["frame"] == "OFFER":
            self.offered(frame)
        else:
            super().begin(channel, frame)

    # Files.

    def number(self):
        """The number of the next file (X-1)."""
        self.files += 1
        self.numbers.add(self.files)
        return self.files

    def file_done(self, number, fault, failures):
        self.results[number] = fault, failures

    def wait(self, number):
        """Waits for the end of a file; gives the failures of a pack."""
        self.run(lambda: number in self.results)
        fault, failures = self.results.pop(number)
        if fault:
            raise fault
        return failures

    def begin_upload(self, local, remote, digest="crc64nvme", **flags):
        """Offers a file; gives its number."""
        number, source = self.number(), folder.FileSource(os.fsencode(local))
        self.offer(source.offer("XFTSMU", number, digest, remote, **flags), source)
        return number

    def upload(self, local, remote, **options):
        """Uploads a file."""
        self.wait(self.begin_upload(local, remote, **options))

    def begin_download(self, remote, target, digest="crc64nvme", offset=0, length=None, wanted=None, **flags):
        """Asks for a file or a pack; `target` opens its sink for an offer. Gives its number."""
        number = self.number()
        request = {"frame": "XFTSM", "file": number, "offset": offset, "length": length, "digest": digest,
                   "path": remote, "pack": wanted}  # fmt: skip
        file = Receiving(number, request)
        file.target, file.flags = target, flags
        self.receiving[number] = file
        self.send(encode(request))
        return number

    def offered(self, offer):
        """OFFER: the target is opened, with the flags of this side (X-55)."""
        number = offer["file"]
        file = self.receiving.get(number)
        if file is None:
            if number not in self.numbers:
                raise violation("OFFER of a file that was not asked for")
            word = self.over.get(number, (None, None))[1]
            if word:
                self.send(word)
            return
        if offer["pack"] != bool(file.request["pack"]) or offer["digest"] != file.request["digest"]:
            raise violation("OFFER isn't what XFTSM asked for")
        if file.offer is not None:
            if offer != file.first_offer:
                raise violation("OFFER differs from the one before")
            self.send(file.accept)
            return
        file.first_offer = offer
        if not file.request["pack"]:
            offer = {**offer, "overwrite": False, "resume": "never", "dry_run": False, **file.flags}
        try:
            sink = file.target(offer)
        except (OSError, Fault) as error:
            self.fail(number, folder.as_fault(error, "open the target"))
            return
        if offer["dry_run"]:  # the acceptor knows nothing of it
            word = encode("CANCEL", file=number)
            self.close_file(number, word)
            self.send(word)
            self.file_done(number, None, [])
            return
        self.accept_offer(file, offer, sink)

    def download(self, remote, local, digest="crc64nvme", offset=0, length=None, **flags):
        """Downloads a file."""
        path = os.fsencode(local)

        def target(offer):
            place = os.path.join(path, os.path.basename(remote)) if os.path.isdir(path) else path
            return folder.FileSink(place, offer)

        self.wait(self.begin_download(remote, target, digest, offset, length, **flags))

    # Trees.

    def upload_tree(self, local, remote, digest="crc64nvme", overwrite=False):
        """Uploads a directory: small entries in packs, large files one by one; gives what failed."""
        base, entries, size, failures = os.fsencode(local), [], 0, []
        self.call("make-directory", parents=True, mode=None, path=remote)

        def flush():
            nonlocal entries, size
            if entries:
                number, data = self.number(), packs.encode_entries(entries)
                self.offer(folder.pack_offer("XFTSMU", number, len(data), digest, remote, overwrite), Memory(data))
                for first, count, fault in self.wait(number):
                    failures.extend((e["path"], fault) for e in entries[first : first + count])
            entries, size = [], 0

        large, directories = [], []
        for at, names, files in os.walk(base):
            beneath = b"" if at == base else os.path.relpath(at, base)
            directories.append(beneath)
            links = [n for n in names if os.path.islink(os.path.join(at, n))]
            for name in sorted(files) + links:
                entry = folder.entry_of(base, join(beneath, name), SMALL)
                if entry["kind"] == "large":
                    large.append(entry["path"])
                    continue
                if entry["kind"] == "failed":
                    failures.append((entry["path"], entry["fault"]))
                    continue
                entries.append(entry)
                size += len(entry.get("bytes", b"")) + len(entry["path"]) + 64
                if size > PACK_BYTES:
                    flush()
            entries += [folder.entry_of(base, join(beneath, n), SMALL) for n in names if n not in links]
        flush()
        for path in large:
            try:
                self.upload(os.path.join(base, path), join(remote, path), digest=digest, overwrite=overwrite)
            except Fault as fault:
                failures.append((path, fault))
        # What was made in a directory has changed its time.
        for path in reversed(directories):
            entries.append({**folder.entry_of(base, path, SMALL), "kind": "attributes"})
        flush()
        self.call("sync", path=remote)
        return failures

    def list(self, path):
        """The entries of a directory, as they come. P-33: its cursors lead to an end."""
        cursor, passed, left = b"", set(), LISTED
        while True:
            answer = self.call("list", entries_max=1000, path=path, cursor=cursor)
            cursor, left = answer["cursor"], left - len(answer["entries"])
            if cursor and (cursor in passed or not answer["entries"]):
                raise Fault("protocol-violation", "list a directory", "the server's listing never ends", path)
            if left < 0:
                raise Fault("limit-exceeded", "list a directory", f"it has more than {LISTED} names", path)
            yield from answer["entries"]
            if not cursor:
                return
            passed.add(cursor)

    def list_tree(self, remote, beneath=b""):
        """The entries below a directory, as (path beneath it, attributes); directories come before what is in them."""
        for entry in self.list(join(remote, beneath)):
            path = join(beneath, entry["name"])
            yield path, entry["attributes"]
            if entry["attributes"]["kind"] == "directory":
                yield from self.list_tree(remote, path)

    def download_tree(self, remote, local, digest="crc64nvme", overwrite=False):
        """Downloads a directory; gives what failed."""
        base, failures, large = os.fsencode(local), [], []
        os.makedirs(base, exist_ok=True)
        found = list(self.list_tree(remote))
        names = [path for path, _ in found]
        while names:
            wanted = {"keep_owner": False, "keep_xattrs": False, "keep_read_times": False, "follow_links": False,
                      "file_bytes_max": SMALL, "names": names[:500]}  # fmt: skip
            told = []

            def carry_out(data, replace, asked=tuple(wanted["names"]), told=told):
                entries = packs.decode_entries(data)
                told += [e["path"] for e in entries]
                if not entries or tuple(told) != asked[: len(told)]:
                    raise packs.unexpected("the entries aren't those that were asked for")
                for entry in entries:
                    is_more = entry["owner"] or entry["xattrs"] or entry["atime_ns"] is not None
                    if is_more or entry["kind"] in ("hard-link", "attributes"):
                        raise packs.unexpected("an entry has more than was asked for (K-28)")
                failed = []
                for index, entry in enumerate(entries):
                    if entry["kind"] == "large":
                        large.append(entry["path"])
                        continue
                    try:
                        if entry["kind"] == "failed":
                            raise entry["fault"]
                        folder.carry_out_entry(base, entry, replace)
                    except (OSError, Fault) as error:
                        fault = folder.as_fault(error, "carry out an entry", entry["path"])
                        failures.append((entry["path"], fault))
                        failed.append((index, fault))
                return failed

            def target(offer, carry_out=carry_out):
                return folder.PackSink(carry_out, {**offer, "overwrite": overwrite})

            self.wait(self.begin_download(remote, target, digest, wanted=wanted))
            names = names[len(told) :]
        for path in large:
            try:
                self.download(join(remote, path), os.path.join(base, path), digest, overwrite=overwrite)
            except Fault as fault:
                failures.append((path, fault))
        for path, attributes in reversed(found):
            if attributes["kind"] == "directory" and os.path.isdir(os.path.join(base, path)):
                time = attributes["mtime_ns"]
                os.utime(os.path.join(base, path), ns=(time, time))
        return failures

    # Files in place.

    def open_file(self, path, **flags):
        """Opens a file; gives the answer, with its handle."""
        off = dict.fromkeys(("read", "write", "append", "create", "exclusive", "truncate"), False)
        owner = secrets.token_bytes(16)
        return self.call("open", **{**off, **flags}, mode=None, owner=owner, identity=None, path=path)

    def write_file(self, path, data, append=False):
        """Writes a file in place."""
        handle = self.open_file(path, write=True, create=True, truncate=not append, append=append)["handle"]
        for at in range(0, len(data), 61_440):
            piece = data[at : at + 61_440]
            if append:
                self.call("append", handle=handle, locked=False, bytes=piece)
            else:
                extents = [{"offset": at, "length": len(piece)}]
                self.call("write", handle=handle, locked=False, extents=extents, bytes=piece)
        self.call("flush", handle=handle, data_only=False)
        self.call("close", handle=handle)

    def read_file(self, path):
        """All bytes of a file."""
        handle, data = self.open_file(path, read=True)["handle"], b""
        while True:
            extents = [{"offset": len(data), "length": 61_440}]
            piece = self.call("read", handle=handle, locked=False, extents=extents)["bytes"]
            if not piece:
                self.call("close", handle=handle)
                return data
            data += piece


def parse(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--channels", type=int, default=2)
    parser.add_argument("--block", type=int, default=0, help="block size; 0 leaves it to the server")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--digest", choices=("none", "crc64nvme", "blake3"), default="crc64nvme")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--no-resume", action="store_true")
    parser.add_argument("--verify-resumed", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--length", type=int)
    parser.add_argument("--drop-after", type=int, default=0, help="break a channel after so many data frames")
    parser.add_argument("--die-after", type=int, default=0, help="break all channels after so many data frames")
    parser.add_argument("--leave-after", type=int, default=0, help="replace a channel after so many data frames")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("command", choices=sorted(COMMANDS))
    parser.add_argument("operands", nargs="+")
    return parser.parse_args(arguments)


def copy_flags(options):
    """The flags of an offer."""
    resume = "never" if options.no_resume else "verify" if options.verify_resumed else "trust"
    return {"overwrite": options.overwrite, "resume": resume, "dry_run": options.dry_run}


def put(client, options, path, local):
    """put URL FILE"""
    client.upload(local, path, digest=options.digest, **copy_flags(options))


def get(client, options, path, local):
    """get URL FILE"""
    client.download(path, local, options.digest, options.offset, options.length, **copy_flags(options))


def put_tree(client, options, path, local):
    """put-tree URL DIRECTORY"""
    return client.upload_tree(local, path, options.digest, options.overwrite)


def get_tree(client, options, path, local):
    """get-tree URL DIRECTORY"""
    return client.download_tree(path, local, options.digest, options.overwrite)


def listing(client, _options, path):
    """ls URL"""
    for entry in client.list(path):
        print(entry["attributes"]["kind"], entry["attributes"]["size"], os.fsdecode(entry["name"]))


def show(answer):
    """An answer in one line."""
    skip = ("frame", "slot", "sequence", "part", "last")
    print({k: v for k, v in answer.items() if k not in skip})


COMMANDS = {
    "put": put,
    "get": get,
    "put-tree": put_tree,
    "get-tree": get_tree,
    "ls": listing,
    "stat": lambda c, o, path: show(c.call("stat", follow=False, path=path)["attributes"]),
    "mkdir": lambda c, o, path: show(c.call("make-directory", parents=True, mode=None, path=path)),
    "rm": lambda c, o, path: show(c.call("remove-file", path=path)),
    "rmdir": lambda c, o, path: show(c.call("remove-directory", path=path)),
    "rmtree": lambda c, o, path: show(c.call("remove-tree", path=path)),
    "mv": lambda c, o, path, to: show(c.call("rename", overwrite=o.overwrite, path=path, to=to.encode())),
    "copy": lambda c, o, path, to: show(c.call("copy", overwrite=o.overwrite, path=path, to=to.encode())),
    "symlink": lambda c, o, path, target: show(c.call("symlink", target=target.encode(), path=path)),
    "readlink": lambda c, o, path: print(os.fsdecode(c.call("read-link", path=path)["target"])),
    "sum": lambda c, o, path: print(
        c.call("checksum", offset=0, length=None, digest=o.digest, path=path)["digest"][1].hex()
    ),
    "df": lambda c, o, path: show(c.call("space", path=path)),
    "sync": lambda c, o, path: show(c.call("sync", path=path)),
    "cat": lambda c, o, path: sys.stdout.buffer.write(c.read_file(path)),
    "write": lambda c, o, path, text: c.write_file(path, text.encode()),
    "append": lambda c, o, path, text: c.write_file(path, text.encode(), append=True),
}


def main(arguments=None):
    """Carries out one command."""
    options = parse(arguments)
    url, *operands = options.operands
    client = None
    try:
        host, port, path = parse_url(url)

        def log(text):
            print(text, file=sys.stderr)

        client = Client(host, port, options.channels, options.block, options.strict, log if options.verbose else None)
        client.drop_after, client.die_after = options.drop_after, options.die_after
        client.leave_after = options.leave_after
        failures = COMMANDS[options.command](client, options, path, *operands)
        client.close()
        failures = failures if isinstance(failures, list) else []
        for path, fault in failures:
            print(f"{os.fsdecode(path)}: {fault}", file=sys.stderr)
        return 1 if failures else 0
    except PeerFault as error:
        print(f"the server ended the session: {error.fault}", file=sys.stderr)
    except (Fault, OSError) as error:
        print(error, file=sys.stderr)
        if client and client.die_after and client.ended:
            return 75
        if client and client.channels:
            violated = isinstance(error, Fault) and error.code in ("protocol-violation", "malformed-frame")
            if violated:
                client.send(encode("EXCEPTION", scope="session", file=0, fault=error))
                client.finish()
            else:
                client.close()
    return 1


if __name__ == "__main__":
    sys.exit(main())
