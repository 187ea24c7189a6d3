"""The reference server: `python3 server.py --root FOLDER [--port N]`. Prints `listening on PORT` when it is ready.

Serves one folder without protection to whoever connects. One thread does everything, so a call that takes long holds
up all sessions.
"""

import argparse
import hmac
import os
import secrets
import selectors
import socket
import sys
import time

import digests
import folder
import wire
from calls import unsupported
from peer import FILES_MAX, Channel, Memory, PeerFault, Receiving, Session, as_fault
from wire import Fault, encode, violation

OPENING = 10.0  # seconds for the opening (O-15)
CHANNELS_MAX = 64
BLOCK = 256 << 10
PART_BYTES = 32 << 10  # of a part of a list
PARTS_AHEAD = 8  # parts sent beyond those taken (P-8)


class Call:
    """A call that is being answered, in its slot."""

    def __init__(self, sequence, parts):
        self.sequence, self.made, self.parts = sequence, iter(parts), {}
        self.next, self.taken, self.done, self.stop = 0, 0, False, False


class Acceptor(Session):
    """One session at the server."""

    def __init__(self, server, request, block, channels):
        super().__init__(block, server.log)
        self.server, self.root, self.id = server, server.root, request["session"]
        self.secret, self.allowed = secrets.token_bytes(16), channels
        self.strict, self.began = request["start"] == "strict", time.monotonic()
        self.lost_eofr = None
        self.used, self.slots, self.handles, self.next_handle = {0}, {}, {}, 1

    def check(self):
        """Deadlines, and the end when the last channel is gone."""
        if not self.channels:
            self.end(None)
        elif self.strict and time.monotonic() - self.began > OPENING:
            raise Fault("deadline-exceeded", "start the session", "not all channels came")

    def file_done(self, number, fault, failures):
        if 0 < self.server.options.end_after <= len(self.over) and not self.eoft_read and self.is_idle():
            self.server.options.end_after = 0
            self.log("the session is ended first")
            self.eoft_sent = True
            self.send(encode("EOFT"))

    def is_idle(self):
        """Whether nothing is left to do, as far as is known here (S-24, S-30)."""
        return not self.sending and not self.receiving and all(call.done for call in self.slots.values())

    def add_channel(self, channel):
        self.used.add(channel.index)
        if len(self.channels) + 1 >= self.allowed:
            self.strict = False
        super().add_channel(channel)

    def end(self, fault):
        for fd, _ in self.handles.values():
            os.close(fd)
        self.handles.clear()
        super().end(fault)
        self.server.forget(self)

    def close_file(self, number, word):
        self.server.release((self.id, number))
        super().close_file(number, word)

    # Paths.

    def place(self, path, follow=False):
        """The place of a path of the protocol in this folder (F-23, F-24)."""
        names = [name for name in path.split(b"/") if name not in (b"", b".")]
        at = os.path.join(self.root, *names)
        whole = follow or not names or names[-1] == b".."
        parent = os.path.realpath(at if whole else os.path.dirname(at))
        if names and names[-1] == b"..":
            at = parent
        if parent != self.root and not parent.startswith(self.root.rstrip(b"/") + b"/"):
            raise Fault("path-escape", "find the path", "it leads out of the folder", path)
        return at

    def handle(self, channel, frame):
        if self.eoft_sent and frame["frame"] not in ("EOFT", "EXCEPTION"):  # asked for too late (S-31)
            return
        if frame["frame"] == "EOFR" and self.lost_eofr:
            same = "the same" if frame == self.lost_eofr else f"another one: {self.lost_eofr}, {frame}"
            self.log(f"EOFR came again, {same}")
        elif frame["frame"] == "EOFR" and self.server.options.lose_eofr and len(self.channels) > 1:
            self.lost_eofr, self.server.options.lose_eofr = frame, False
            time.sleep(0.3)
            self.lose(channel)
            return
        super().handle(channel, frame)

    def data(self, channel, frame):
        if self.server.options.spoil:
            path, self.server.options.spoil = self.server.options.spoil, None
            before = os.stat(path)
            with open(path, "r+b") as file:
                first = file.read(1)
                file.seek(0)
                file.write(bytes([first[0] ^ 1]))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        super().data(channel, frame)

    # How files begin.

    def begin(self, channel, frame):
        """XFTSMU, XFTSM, XPATHM and TAKEN."""
        name = frame["frame"]
        if name == "TAKEN":
            self.taken(frame)
        elif name in ("XFTSMU", "XFTSM", "XPATHM"):
            if self.strict:
                raise violation(f"{name} came before the session started")
            {"XFTSMU": self.upload, "XFTSM": self.download, "XPATHM": self.called}[name](frame)
        elif name in ("XDFSM", "ZXDFS"):
            raise Fault("unsupported", "go on", f"{name} is for later versions")
        else:
            super().begin(channel, frame)

    def upload(self, offer):
        """An offer of a file or pack: the target is opened."""
        number = offer["file"]
        if number in self.sending:
            raise violation("the number is that of a download (X-1)")
        file = self.receiving.get(number)
        if file or number in self.over:
            first, word = (file.offer, file.accept) if file else self.over[number]
            if first is not None and first != offer:
                raise violation("an offer differs from the one before")
            self.say_again(number, word)
            return
        if self.is_used(number):
            self.say_again(number, None)
            return
        self.numbers.add(number)
        file = self.receiving[number] = Receiving(number)
        try:
            if len(self.receiving) + len(self.sending) > FILES_MAX:
                raise Fault("limit-exceeded", "take the file", "too many files are open")
            self.accept_offer(file, offer, self.sink(offer, number))
        except (OSError, Fault) as error:
            if isinstance(error, Fault) and error.code == "protocol-violation":
                raise
            self.fail(number, as_fault(error, "open the target", offer["path"]))

    def sink(self, offer, number):
        """What an offer is written to."""
        if offer["pack"]:
            self.need_packs("write")
            base = self.place(offer["path"], follow=True)
            return folder.PackSink(lambda data, replace: folder.carry_out(base, data, replace), offer)
        path = self.place(offer["path"])
        if os.path.isdir(path) and offer["name"]:
            if b"/" in offer["name"] or offer["name"] in (b".", b".."):
                raise Fault("path-escape", "open the target", "the name is none", offer["name"])
            path = os.path.join(path, offer["name"])
        elif not self.place(offer["path"], follow=os.path.exists(path)) or path == self.root:
            raise Fault("is-a-directory", "open the target", "it is the folder itself")
        if not offer["dry_run"]:
            self.server.claim(path, (self.id, number))
        return folder.FileSink(path, offer)

    def need_packs(self, operation):
        """What an acceptor of single files says to packs (K-20)."""
        if self.server.options.no_packs:
            raise unsupported(operation)

    def download(self, request):
        """A request for a file or pack: the source is opened."""
        number = request["file"]
        first = self.over.get(number, (request, None))[0]
        if number in self.receiving or (first and first["frame"] == "XFTSMU"):
            raise violation("the number is that of an upload (X-1)")
        if self.is_used(number):  # it came again
            if number not in self.sending:
                self.say_again(number, self.over.get(number, (None, None))[1])
            elif self.sending[number].state == "offered":
                self.send(encode(self.sending[number].offer))
            return
        self.numbers.add(number)
        try:
            if len(self.receiving) + len(self.sending) > FILES_MAX:
                raise Fault("limit-exceeded", "send the file", "too many files are open")
            path = self.place(request["path"], follow=True)
            if request["pack"]:
                self.need_packs("read")
                wanted = request["pack"]
                if self.server.options.give_owners:
                    wanted = {**wanted, "keep_owner": True}
                data = folder.answer_request(path, wanted)
                self.offer(folder.pack_offer("OFFER", number, len(data), request["digest"]), Memory(data))
            else:
                source = folder.FileSource(path, request["offset"], request["length"])
                self.offer(source.offer("OFFER", number, request["digest"]), source)
        except (OSError, Fault) as error:
            word = encode("EXCEPTION", scope="file", file=number,
                          fault=as_fault(error, "open the source", request["path"]))  # fmt: skip
            self.over[number] = (request, word)
            self.send(word)

    # Calls.

    def called(self, frame):
        """XPATHM: every call is carried out once (P-2, P-3)."""
        slot = self.slots.get(frame["slot"])
        last = slot.sequence if slot else 0
        if frame["sequence"] <= last:
            return
        if frame["sequence"] != last + 1 or (slot and not slot.done):
            raise violation("a call was made too early")
        call = self.slots[frame["slot"]] = Call(frame["sequence"], self.parts_of(frame))
        self.go_on(frame["slot"], call)

    def parts_of(self, frame):
        """The contents of an answer, the last one last."""
        try:
            if "unknown_operation" in frame:
                raise unsupported("do what was asked for")
            if frame["call"] == "list":
                yield from self.list_parts(frame)
            else:
                method = getattr(self, "call_" + frame["call"].replace("-", "_"), None)
                if method is None:
                    raise unsupported(frame["call"].replace("-", " "))
                yield method(frame)
        except (OSError, Fault) as error:
            yield {"answer": "fault", "fault": as_fault(error, frame.get("call", "call"), frame.get("path", b""))}

    def go_on(self, slot, call):
        """Makes parts while there is room for them."""
        while not call.done and call.next - call.taken < PARTS_AHEAD:
            content = next(call.made)
            call.done = content["answer"] != "entries" or content.pop("end")
            if call.stop and not call.done:
                fault = Fault("cancelled", "list a directory", "no more parts are wanted")
                content, call.done = {"answer": "fault", "fault": fault}, True
            part = encode("ANSWER", slot=slot, sequence=call.sequence, part=call.next, last=call.done, **content)
            call.parts[call.next] = part
            call.next += 1
            self.send(part)

    def taken(self, frame):
        """TAKEN: counts parts, and makes room for others (P-9)."""
        call = self.slots.get(frame["slot"])
        if call is None or frame["sequence"] > call.sequence:
            raise violation("TAKEN names a call that was not made")
        if frame["sequence"] < call.sequence:
            return
        if frame["parts"] > call.next:
            raise violation("TAKEN counts parts that were not made")
        call.taken = max(call.taken, frame["parts"])
        call.stop = call.stop or frame["stop"]
        for part in [n for n in call.parts if n < call.taken]:
            del call.parts[part]
        self.go_on(frame["slot"], call)

    def send_calls_again(self):
        for call in self.slots.values():
            for part in call.parts.values():
                self.send(part)

    def list_parts(self, frame):
        """The entries of a directory, in parts; cursors are the last names."""
        path = self.place(frame["path"], follow=True)
        names = sorted(n for n in os.listdir(path) if not folder.is_hidden(n) and n > frame["cursor"])
        given, entries, size = 0, [], 0
        for name in names:
            try:
                entry = {"attributes": folder.attributes(os.path.join(path, name)), "name": name}
            except FileNotFoundError:
                continue
            if given == frame["entries_max"]:  # so none ends with a cursor and without an entry (P-33)
                yield {"answer": "entries", "cursor": entries[-1]["name"], "entries": entries, "end": True}
                return
            if size > PART_BYTES:
                yield {"answer": "entries", "cursor": entries[-1]["name"], "entries": entries, "end": False}
                entries, size = [], 0
            entries.append(entry)
            given, size = given + 1, size + 80 + len(name)
        yield {"answer": "entries", "cursor": None, "entries": entries, "end": True}

    def call_stat(self, c):
        """Attributes of what stands at a path."""
        found = folder.attributes(self.place(c["path"], c["follow"]), c["follow"])
        return {"answer": "attributes", "attributes": found}

    def call_make_directory(self, c):
        """A directory, with those above it if asked for."""
        path = self.place(c["path"])
        if c["parents"]:
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)
        if c["mode"] is not None:
            os.chmod(path, c["mode"] & 0o777)
        return DONE

    def call_remove_file(self, c):
        """Anything but a directory."""
        os.unlink(self.place(c["path"]))
        return DONE

    def call_remove_directory(self, c):
        """An empty directory."""
        os.rmdir(self.below(c["path"]))
        return DONE

    def call_remove_tree(self, c):
        """Whatever stands there."""
        return {"answer": "removed", "entries": folder.remove_tree(self.below(c["path"]))}

    def below(self, path):
        """A path that isn't the root, which stays."""
        at = self.place(path)
        if at == self.root:
            raise Fault("permission-denied", "change the path", "the root of the folder stays", path)
        return at

    def call_rename(self, c):
        """Gives another name."""
        source, target = self.below(c["path"]), self.below(c["to"])
        os.lstat(source)
        if os.path.lexists(target) and not c["overwrite"]:
            raise Fault("already-exists", "rename", "the target exists already", c["to"])
        os.replace(source, target)
        return DONE

    def call_copy(self, c):
        """Copies a file."""
        source, target = self.place(c["path"], follow=True), self.below(c["to"])
        if os.path.lexists(target) and not c["overwrite"]:
            raise Fault("already-exists", "copy", "the target exists already", c["to"])
        with open(source, "rb") as file:
            data, found = file.read(), os.fstat(file.fileno())
        part = os.fsencode(target) + b".copying"
        with open(part, "wb") as file:
            file.write(data)
        os.chmod(part, found.st_mode & 0o777)
        os.utime(part, ns=(found.st_mtime_ns, found.st_mtime_ns))
        os.replace(part, target)
        return {"answer": "copied", "bytes": len(data)}

    def call_link(self, c):
        """A further name of a file."""
        os.link(self.place(c["existing"]), self.below(c["path"]), follow_symlinks=False)
        return DONE

    def call_symlink(self, c):
        """A symbolic link."""
        os.symlink(c["target"], self.below(c["path"]))
        return DONE

    def call_read_link(self, c):
        """What a symbolic link says."""
        return {"answer": "target", "target": os.readlink(self.place(c["path"]))}

    def call_set_mode(self, c):
        """Permission bits; not the special ones."""
        os.chmod(self.place(c["path"], follow=True), c["mode"] & 0o777)
        return DONE

    def call_set_times(self, c):
        """Times of the last read and the last change."""
        path = self.place(c["path"], c["follow"])
        s = os.stat(path, follow_symlinks=c["follow"])
        read = s.st_atime_ns if c["atime_ns"] is None else c["atime_ns"]
        changed = s.st_mtime_ns if c["mtime_ns"] is None else c["mtime_ns"]
        os.utime(path, ns=(read, changed), follow_symlinks=c["follow"])
        return DONE

    def call_truncate(self, c):
        """Cuts or extends a file."""
        os.truncate(self.place(c["path"], follow=True), c["length"])
        return DONE

    def call_space(self, c):
        """Room of the file system."""
        s = os.statvfs(self.place(c["path"], follow=True))
        return {"answer": "space", "total": s.f_blocks * s.f_frsize, "free": s.f_bfree * s.f_frsize,
                "available": s.f_bavail * s.f_frsize, "files": s.f_files, "files_free": s.f_ffree}  # fmt: skip

    def call_checksum(self, c):
        """The digest of a file or a part of it."""
        source = folder.FileSource(self.place(c["path"], follow=True), c["offset"], c["length"])
        try:
            data = source.read(0, source.length)
        finally:
            source.close()
        value = digests.checksum(c["digest"], data)
        return {"answer": "digest", "length": len(data), "digest": (c["digest"], value)}

    def call_sync(self, c):
        """Everything below the path is durable (P-32): here file by file."""
        folder.sync_tree(self.place(c["path"], follow=True))
        return DONE

    # Open files.

    def call_open(self, c):
        """Opens a regular file."""
        if c["identity"] is not None:
            raise unsupported("open a file again")
        path = self.place(c["path"], follow=os.path.lexists(self.place(c["path"])))
        if os.path.isdir(path):
            raise Fault("is-a-directory", "open the file", "it is a directory", c["path"])
        if os.path.lexists(path) and not os.path.isfile(path):
            raise Fault("not-a-regular-file", "open the file", "it isn't a file", c["path"])
        existed = os.path.lexists(path)
        both, flags = c["read"] and c["write"], os.O_NONBLOCK
        flags |= os.O_RDWR if both else os.O_WRONLY if c["write"] else os.O_RDONLY
        for name, flag in (("append", os.O_APPEND), ("create", os.O_CREAT), ("exclusive", os.O_EXCL),
                           ("truncate", os.O_TRUNC)):  # fmt: skip
            flags |= flag if c[name] else 0
        mode = 0o666 if c["mode"] is None else c["mode"] & 0o777
        fd = os.open(path, flags, mode)
        handle, self.next_handle = self.next_handle, self.next_handle + 1
        self.handles[handle] = (fd, path)
        return {"answer": "opened", "handle": handle, "created": not existed, "run": self.server.run,
                "identity": folder.identity_of(os.fstat(fd)), "attributes": folder.attributes(path, True)}  # fmt: skip

    def fd(self, c):
        """The open file that a call names (D-1)."""
        if c["handle"] not in self.handles:
            raise Fault("stale", "use the file", "it isn't open")
        if c.get("locked"):
            raise Fault("lock-lost", "use the file", "no lock is held")
        return self.handles[c["handle"]][0]

    def call_read(self, c):
        """Bytes of an open file."""
        fd = self.fd(c)
        pieces = [os.pread(fd, e["length"], e["offset"]) for e in c["extents"]]
        return {"answer": "data", "lengths": [len(p) for p in pieces], "bytes": b"".join(pieces)}

    def call_write(self, c):
        """Writes at given places."""
        fd, at = self.fd(c), 0
        for e in c["extents"]:
            os.pwrite(fd, c["bytes"][at : at + e["length"]], e["offset"])
            at += e["length"]
        return DONE

    def call_append(self, c):
        """Writes at the end."""
        fd = self.fd(c)
        count = os.write(fd, c["bytes"])
        return {"answer": "appended", "offset": os.lseek(fd, 0, os.SEEK_CUR) - count, "length": count}

    def call_flush(self, c):
        """What was written is durable, and the name too (D-10)."""
        os.fsync(self.fd(c))
        folder.sync_path(os.path.dirname(self.handles[c["handle"]][1]))
        return DONE

    def call_set_length(self, c):
        """Cuts or extends an open file."""
        os.ftruncate(self.fd(c), c["length"])
        return DONE

    def call_stat_handle(self, c):
        """Attributes of an open file."""
        self.fd(c)
        found = folder.attributes(self.handles[c["handle"]][1], True)
        return {"answer": "attributes", "attributes": found}

    def call_close(self, c):
        """Closes a file."""
        os.close(self.fd(c))
        del self.handles[c["handle"]]
        return DONE


DONE = {"answer": "done"}


class Opening:
    """A connection that isn't a channel yet."""

    def __init__(self, sock):
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.input, self.welcomed, self.since = sock, b"", False, time.monotonic()

    def say(self, data):
        """Sends the few bytes of an answer, which a fresh connection takes at once."""
        try:
            self.sock.send(data)
        except OSError:
            pass

    def step(self):
        """Takes what arrived; gives the frame that asks for a session, or None until it is there."""
        more = self.sock.recv(4096)
        if not more:
            raise Fault("connection-lost", "open the channel", "the peer closed it")
        self.input += more
        if not self.welcomed:
            opening = wire.decode_opening(self.input, 0)
            if opening is None:
                return None
            message, length = opening
            self.decide(message)
            self.say(wire.welcome())
            self.welcomed, self.input = True, self.input[length:]
        length = wire.frame_length(self.input)
        if length is None or len(self.input) < length:
            return None
        frame, self.input = wire.decode(self.input[:length]), self.input[length:]
        return frame

    def decide(self, message):
        """What the acceptor decides about HELLO, in this order (O-8 to O-10)."""
        if message["service"] != 0:
            names = {1: "remote processes", 2: "remote threads"}
            name = names.get(message["service"], str(message["service"]))
            raise Fault("feature-unsupported", "open the channel", f"service not available: {name}")
        if not message["version_min"] <= 1 <= message["version_max"]:
            told = f"{message['version_min']} to {message['version_max']}"
            raise Fault("version-unsupported", "open the channel", f"version 1 is spoken here, there {told}")
        for number, name, _ in message["features"]:
            if number >= 0x8000:
                raise Fault("feature-unsupported", "open the channel", f"{name} is unknown")


class Server:
    """All sessions, and connections that open."""

    def __init__(self, root, port, options):
        self.root, self.options = os.path.realpath(os.fsencode(root)), options
        self.log = (lambda text: print(text, file=sys.stderr)) if options.verbose else (lambda text: None)
        self.listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        self.sessions, self.targets, self.openings = {}, {}, set()
        self.run = secrets.randbits(64)

    def claim(self, path, holder):
        """One session writes a target at a time (X-34)."""
        if self.targets.setdefault(path, holder) != holder:
            raise Fault("busy", "open the target", "another session writes it", path, retry=500)

    def release(self, holder):
        """A file is over."""
        self.targets = {path: h for path, h in self.targets.items() if h != holder}

    def forget(self, session):
        """A session is over."""
        self.sessions.pop(session.id, None)
        self.targets = {path: h for path, h in self.targets.items() if h[0] != session.id}

    def serve(self):
        """Serves until the process is ended."""
        while True:
            busy = any(s.sending for s in self.sessions.values())
            for key, _ in self.selector.select(0 if busy else 0.005 if self.sessions else 0.2):
                if key.data is None:
                    opening = Opening(self.listener.accept()[0])
                    self.openings.add(opening)
                    self.selector.register(opening.sock, selectors.EVENT_READ, opening)
                else:
                    self.open(key.data)
            for opening in list(self.openings):
                if time.monotonic() - opening.since > OPENING:
                    self.drop(opening)
            for session in list(self.sessions.values()):
                self.go_on(session)

    def go_on(self, session):
        """Gives a session its turn."""
        try:
            session.pump(0.002)
            session.check()
        except PeerFault as error:
            session.end(error.fault)
        except Fault as fault:
            self.log(f"the session is refused: {fault}")
            session.send(encode("EXCEPTION", scope="session", file=0, fault=fault))
            session.finish()

    def drop(self, opening):
        """Closes a connection that isn't a channel yet."""
        self.openings.discard(opening)
        self.selector.unregister(opening.sock)
        opening.sock.close()

    def open(self, opening):
        """What a connection brought before it is a channel."""
        try:
            frame = opening.step()
            if frame is None:
                return
            if frame["frame"] == "SESSION":
                self.register(opening, frame)
            elif frame["frame"] == "JOIN":
                self.join(opening, frame)
            else:
                raise violation(f"{frame['frame']} came first")
        except Fault as fault:
            # Before the session is open the scope is the channel, which is closed (S-10, F-6).
            refused = encode("EXCEPTION", scope="channel", file=0, fault=fault)
            opening.say(refused if opening.welcomed else wire.refusal(fault))
            self.drop(opening)
        except OSError:
            self.drop(opening)

    def adopt(self, session, opening, index, answer):
        """Makes a channel of a connection."""
        self.openings.discard(opening)
        self.selector.unregister(opening.sock)
        channel = Channel(index, opening.sock, opening.input)
        channel.send(answer)
        session.add_channel(channel)

    def register(self, opening, request):
        """SESSION (S-2 to S-4)."""
        if request["session"] in self.sessions:
            raise violation("the session exists already")
        named = request["block_size"]
        block = min(BLOCK, 1 << (named.bit_length() - 1)) if named else BLOCK
        channels = min(request["channels"], CHANNELS_MAX)
        session = Acceptor(self, request, block, channels)
        session.drop_after, session.die_after = self.options.drop_after, self.options.die_after
        self.options.drop_after = self.options.die_after = 0
        self.sessions[session.id] = session
        answer = encode("SESSION-OK", secret=session.secret, channels=channels, block_size=block, window=0)
        self.adopt(session, opening, 0, answer)

    def join(self, opening, request):
        """JOIN (S-7 to S-9)."""
        session = self.sessions.get(request["session"])
        right = session and not session.eoft_sent and hmac.compare_digest(session.secret, request["secret"])
        if not right or request["channel"] in session.used:
            raise Fault("session-unknown", "join the session", "no such session")
        staying = [c for c in session.channels.values() if not (c.leave_sent or c.leave_read)]
        if len(staying) >= session.allowed:
            raise Fault("too-many-channels", "join the session", f"{session.allowed} channels are open", retry="now")
        self.adopt(session, opening, request["channel"], encode("JOIN-OK"))


def main(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True, help="the folder to serve")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", help="where to write the port")
    parser.add_argument("--lose-eofr", action="store_true", help="break the channel that brings an EOFR first, once")
    parser.add_argument("--spoil", help="change this file in place at the first block, as X-25 is about")
    parser.add_argument("--drop-after", type=int, default=0, help="break a channel after so many data frames, once")
    parser.add_argument("--die-after", type=int, default=0, help="break all channels after so many data frames, once")
    parser.add_argument("--end-after", type=int, default=0, help="end the session after so many files, once (S-30)")
    parser.add_argument("--give-owners", action="store_true", help="break K-28: packs have owners, asked for or not")
    parser.add_argument("--no-packs", action="store_true", help="move single files only, as K-20 allows")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args(arguments)
    server = Server(options.root, options.port, options)
    print(f"listening on {server.port}", flush=True)
    if options.port_file:
        with open(options.port_file + ".new", "w") as file:
            file.write(str(server.port))
        os.replace(options.port_file + ".new", options.port_file)
    server.serve()


if __name__ == "__main__":
    main()
