"""One side of a session: channels, files that are sent and received, what is sent again (session.md, xftsm.md).

Everything happens in one thread. `Session.pump` waits for the channels once and does what they brought. The
initiator (client.py) and the acceptor (server.py) add how files begin, and calls.
"""

import os
import selectors
import socket
import time
from collections import OrderedDict, deque

import digests
from wire import DamagedHeader, Fault, decode, encode, frame_length, violation

IN_FLIGHT_MAX = 8 << 20  # bytes sent and not acknowledged (M-3)
RANGES_MAX = 65_536  # separate ranges of a file
FILES_MAX = 16  # open files
DAMAGED_MAX = 8  # wrong check values within a file
IDLE = 60.0  # seconds
DURABLE_EVERY = 1 << 20  # bytes between two checkpoints
HOLE_MAX = 64 << 20


class Channel:
    """One connection of a session, after its opening."""

    def __init__(self, index, sock, pending=b""):
        sock.setblocking(False)
        self.index, self.sock = index, sock
        self.input, self.output = bytearray(pending), bytearray()
        self.unacknowledged = deque()  # (file, start, end), in the order of sending
        self.sent = self.acknowledged = 0  # data frames
        self.received = self.told = 0  # data frames read, and those told by ACK
        self.leave_sent = self.leave_read = False

    def send(self, data):
        """Queues bytes."""
        self.output += data


class Sending:
    """A file on its way out."""

    def __init__(self, offer, source):
        self.offer, self.source, self.file = offer, source, offer["file"]
        self.kind = digests.NAMES[offer["digest"]]
        self.states = digests.States(self.kind)
        self.state, self.block, self.cursor, self.again = "offered", 0, 0, deque()
        self.durable, self.failing = [], None

    def accept(self, frame):
        """Takes ACCEPT."""
        if self.state != "offered":
            return
        length, self.block = self.offer["length"], frame["block_size"]
        for start, end, state in frame["durable"]:
            if frame["digest"] != self.offer["digest"] or end > length:
                raise violation("a durable range can't be combined")
            if start % self.block or (end % self.block and end != length):
                raise violation("a durable range is off the grid")
            self.states.add(start, end, state)
            self.durable.append((start, end))
        self.state = "sending"

    def next_extent(self):
        """The next range to send, or None."""
        if self.again:
            return self.again.popleft()
        for start, end in self.durable:
            if start <= self.cursor < end:
                self.cursor = end
        if self.cursor >= self.offer["length"]:
            return None
        start = self.cursor
        self.cursor = min(start + self.block, self.offer["length"])
        return start, self.cursor

    def data_frame(self, start, end):
        """BLOCK or HOLE for a range; its state is taken when it is read first."""
        data = self.source.read(start, end - start)
        if len(data) != end - start:
            raise Fault("source-changed", "read the source", "it is shorter than it was")
        if not self.states.holds(start, end):
            self.states.add(start, end, digests.state_of(self.kind, data, start))
        if self.offer["sparse"] and not any(data):
            return encode("HOLE", file=self.file, start=start, end=end)
        check = digests.check_value(data, self.file, start)
        return encode("BLOCK", file=self.file, check=check, offset=start, payload=data)

    def end_frame(self):
        """EOFR; always the same."""
        length = self.offer["length"]
        value = self.states.digest(length)
        return encode("EOFR", file=self.file, length=length, store_wait_permille=0,
                      digest=(self.offer["digest"], value))  # fmt: skip


class Receiving:
    """A file on its way in."""

    def __init__(self, file, request=None):
        self.file, self.request = file, request
        self.offer = self.sink = self.accept = self.end = None
        self.heard, self.damaged, self.repeats, self.undurable = False, 0, set(), 0

    def open(self, offer, sink, block):
        """The target is open; gives ACCEPT."""
        self.offer, self.sink = offer, sink
        self.kind = digests.NAMES[offer["digest"]]
        self.states = digests.States(self.kind)
        self.block = min(block, sink.block or block)
        sink.grid = self.block
        fragments = list(sink.fragments)
        for fragment in fragments:
            self.states.add(*fragment)
        kind = offer["digest"] if fragments else "none"
        self.accept = encode("ACCEPT", file=self.file, block_size=self.block, path=sink.label, digest=kind,
                             durable=fragments)  # fmt: skip
        return self.accept

    def check_place(self, start, end, hole):
        """Whether the range must be taken; one that the rules don't allow is a violation (X-8, X-11)."""
        length = self.end[0] if self.end else self.offer["length"]
        if length is not None and end > length:
            raise violation("data reaches past the length")
        size = end - start
        if start % self.block or (not hole and size > self.block):
            raise violation("data is off the grid")
        if end % self.block and length is not None and end != length:
            raise violation("data ends off the grid")
        if hole and self.kind == digests.BLAKE3 and size > HOLE_MAX:
            raise violation("a hole is too long for BLAKE3")
        held = self.states.overlap(start, end)
        if held and held < size and not hole:
            raise violation("a block overlaps bytes that are held")
        return held < size

    def hold(self, start, end, data=None):
        """Takes bytes, or zeros. A hole is taken by blocks, without those that are held."""
        if data is not None:
            self.sink.write(start, data)
            self.states.add(start, end, digests.state_of(self.kind, data, start))
        elif self.kind != digests.BLAKE3 and not self.states.overlap(start, end):
            self.sink.zeros(start, end)
            state = digests.crc64_zeros(end - start).to_bytes(8, "big") if self.kind else b""
            self.states.add(start, end, state)
        else:
            for at in range(start, end, self.block):
                stop = min(at + self.block, end)
                if not self.states.overlap(at, stop):
                    self.sink.zeros(at, stop)
                    self.states.add(at, stop, digests.state_of(self.kind, bytes(stop - at), at))
        self.repeats = {(a, b) for a, b in self.repeats if not self.states.holds(a, b)}
        self.undurable += end - start
        if len(self.states.ranges) > RANGES_MAX:
            raise Fault("limit-exceeded", "receive the file", "it comes in too many pieces")


class Session:
    """What both sides do alike."""

    initiates = False

    def __init__(self, block, log=None):
        self.block, self.log = block, log or (lambda text: None)
        self.selector = selectors.DefaultSelector()
        self.channels = {}
        self.sending, self.receiving = {}, {}
        self.over = OrderedDict()  # number: (first frame, final answer), of files that ended
        self.numbers = set()
        self.heard = time.monotonic()
        self.eoft_sent = self.eoft_read = self.ended = False
        self.drop_after = self.die_after = self.leave_after = 0  # data frames; 0 for never
        self.data_frames = self.damages = 0

    # Channels.

    def add_channel(self, channel):
        """Takes a channel after its opening."""
        self.channels[channel.index] = channel
        self.selector.register(channel.sock, selectors.EVENT_READ, channel)
        self.read_frames(channel)

    def usable(self):
        """Channels that frames may be sent on: those that don't leave, while there are some (S-21)."""
        staying = [c for c in self.channels.values() if not (c.leave_sent or c.leave_read)]
        return staying or list(self.channels.values())

    def send(self, data):
        """Sends a control frame on the channel where least waits; without one it is made again later."""
        if self.channels:
            min(self.usable(), key=lambda c: len(c.output)).send(data)

    def close_channel(self, channel):
        """Forgets a channel that ended, in order or not."""
        if self.channels.pop(channel.index, None):
            self.selector.unregister(channel.sock)
            channel.sock.close()

    def lose(self, channel):
        """A channel is broken, or ended: what was on it is sent again (S-17, S-18)."""
        if channel.index not in self.channels:
            return
        self.close_channel(channel)
        if self.ended:
            return
        if self.eoft_sent or self.eoft_read:  # not a loss any more (S-30)
            self.eoft_read = self.eoft_read or not self.channels
            if self.eoft_sent and not self.eoft_read:
                self.send(encode("EOFT"))
            return
        self.log(f"channel {channel.index} is lost")
        for file, start, end in channel.unacknowledged:
            if file in self.sending:
                self.sending[file].again.append((start, end))
        for file in self.sending.values():
            if file.state == "offered":
                self.send(encode(file.offer))
            elif file.state in ("ended", "cancelling"):
                self.send(file.end_frame())
                if file.failing:
                    self.send(encode("EXCEPTION", scope="file", file=file.file, fault=file.failing))
        for file in self.receiving.values():
            if file.offer is None:
                self.send(encode(file.request))
            elif not file.heard or file.offer["pack"]:
                self.send(file.accept)
            for start, end in file.repeats:
                self.send(encode("REPEAT", file=file.file, start=start, end=end))
        for _, word in list(self.over.values())[-64:]:
            if word:
                self.send(word)
        self.send_calls_again()
        if self.channels:
            self.replace_channel()

    def replace_channel(self):
        """Opens another channel, where this side can."""

    def send_calls_again(self):
        """Sends again what is open of calls (P-15)."""

    # The loop.

    def pump(self, timeout=0.2):
        """Waits for the channels once, at most `timeout` seconds, and does what they brought."""
        self.fill()
        for channel in list(self.channels.values()):
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.output else 0)
            self.selector.modify(channel.sock, wanted, channel)
        for key, events in self.selector.select(timeout):
            channel = key.data
            if channel.index not in self.channels:
                continue
            if events & selectors.EVENT_WRITE:
                self.write_some(channel)
            if events & selectors.EVENT_READ and channel.index in self.channels:
                self.read_some(channel)
        if time.monotonic() - self.heard > IDLE:
            raise Fault("deadline-exceeded", "go on", "nothing was heard of the peer")

    def write_some(self, channel):
        """Writes what the connection takes."""
        try:
            count = channel.sock.send(channel.output[: 1 << 20])
        except BlockingIOError:
            return
        except OSError:
            self.lose(channel)
            return
        del channel.output[:count]
        self.close_if_left(channel)

    def read_some(self, channel):
        """Reads what is there and handles the whole frames of it."""
        try:
            data = channel.sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lose(channel)
            return
        self.heard = time.monotonic()
        channel.input += data
        self.read_frames(channel)

    def read_frames(self, channel):
        """Handles every whole frame that arrived on a channel, then acknowledges (X-18)."""
        while channel.index in self.channels and not self.ended:
            try:
                if channel.input[:1] != b"\x20" and any(channel.input[2:4]):
                    raise DamagedHeader
                length = frame_length(channel.input)
            except DamagedHeader as fault:
                self.damaged(channel, fault)
                return
            if length is None or len(channel.input) < length:
                break
            frame = decode(bytes(channel.input[:length]))
            del channel.input[:length]
            self.handle(channel, frame)
            if channel.received - channel.told >= 64:
                self.acknowledge(channel)
        if channel.index in self.channels:
            self.acknowledge(channel)
            self.close_if_left(channel)

    def damaged(self, channel, fault):
        """A header was damaged: the channel is broken, and too many of these end the session (F-21)."""
        self.damages += 1
        if self.damages > DAMAGED_MAX:
            raise fault
        try:
            channel.sock.send(encode("EXCEPTION", scope="channel", file=0, fault=fault))
        except OSError:
            pass
        self.lose(channel)

    def acknowledge(self, channel):
        """Sends ACK if data frames were read since the last."""
        if channel.received > channel.told:
            channel.told = channel.received
            channel.send(encode("ACK", data_frames=channel.told))

    def close_if_left(self, channel):
        """Closes a channel that both sides left and on which nothing is owed (S-22)."""
        both = channel.leave_sent and channel.leave_read
        owed = channel.unacknowledged or channel.output or channel.told < channel.received
        others = len(self.channels) > 1
        if both and not owed and others and channel.index in self.channels:
            self.log(f"channel {channel.index} has left")
            self.close_channel(channel)

    def count_data_frame(self, channel):
        """Breaks a channel, or all, where a test asked for it."""
        self.data_frames += 1
        if self.data_frames == self.die_after:
            self.die()
        if self.data_frames == self.drop_after and len(self.channels) > 1:
            self.lose(channel)
        if self.data_frames == self.leave_after:
            self.log(f"channel {channel.index} leaves")
            channel.leave_sent = True
            channel.send(encode("LEAVE"))

    def die(self):
        """Ends without a word, as if the machine had stopped."""
        for channel in list(self.channels.values()):
            self.close_channel(channel)
        self.end(Fault("connection-lost", "go on", "a test broke the session off"))

    def end(self, fault):
        """The session is over: what is durable is recorded (S-19)."""
        if self.ended:
            return
        self.ended = True
        for file in self.receiving.values():
            if file.sink:
                file.sink.checkpoint(file.states)
                file.sink.close()
        for channel in list(self.channels.values()):
            self.close_channel(channel)
        if fault:
            self.log(f"the session ends: {fault}")

    def finish(self):
        """Writes what waits, says the end, and closes when the peer does."""
        deadline = time.monotonic() + 5
        while any(c.output for c in self.channels.values()) and time.monotonic() < deadline:
            self.pump(0.05)
        for channel in list(self.channels.values()):
            try:
                channel.sock.shutdown(socket.SHUT_WR)
                channel.sock.settimeout(1)
                while channel.sock.recv(1 << 16):
                    pass
            except OSError:
                pass
        self.end(None)

    # Sending.

    def offer(self, offer, source):
        """Begins to send a file."""
        self.numbers.add(offer["file"])
        self.sending[offer["file"]] = Sending(offer, source)
        self.send(encode(offer))

    def fill(self):
        """Gives blocks to channels that can take one."""
        if self.ended:
            return
        for file in list(self.sending.values()):
            while file.state in ("sending", "ended"):
                free = [c for c in self.usable() if len(c.output) < file.block + 65_536]
                flying = sum(e - s for c in self.channels.values() for _, s, e in c.unacknowledged)
                if not free or flying > IN_FLIGHT_MAX:
                    return
                extent = file.next_extent()
                if extent is None:
                    break
                channel = min(free, key=lambda c: len(c.output))
                if not self.send_extent(channel, file, extent):
                    break
            if file.state == "sending" and not file.again and file.cursor >= file.offer["length"]:
                self.end_file(file)

    def send_extent(self, channel, file, extent):
        """Puts one data frame on a channel."""
        try:
            frame = file.data_frame(*extent)
        except (Fault, OSError) as error:
            self.fail(file.file, as_fault(error, "read the source", file.source.label))
            return False
        channel.send(frame)
        channel.sent += 1
        channel.unacknowledged.append((file.file, *extent))
        self.count_data_frame(channel)
        return file.file in self.sending

    def end_file(self, file):
        """Every byte was assigned: the source is looked at once more, and EOFR follows (X-24, X-25)."""
        if file.source.changed():
            fault = Fault("source-changed", "send the file", "it changed meanwhile", file.source.label)
            self.fail(file.file, fault)
            return
        file.state = "ended"
        self.send(file.end_frame())

    # Ends of files.

    def close_file(self, number, word):
        """A file is over on this side; its final answer is kept (S-18)."""
        sending, receiving = self.sending.pop(number, None), self.receiving.pop(number, None)
        first = None
        if sending:
            first = sending.offer
            sending.source.close()
        if receiving:
            first = receiving.offer or receiving.request
            if receiving.sink:
                receiving.sink.close()
        self.over[number] = (first, word)
        while len(self.over) > 64:
            self.over.popitem(last=False)

    def is_used(self, number):
        """Whether a number of a file counts as used (M-7)."""
        return number == 0 or number in self.numbers or number + 1024 <= max(self.numbers, default=0)

    def say_again(self, number, word):
        """The final answer on a file, or that it isn't kept (M-8, M-9)."""
        if not word:
            fault = Fault("limit-exceeded", "resume the file", "it is over, and its end is forgotten", retry="now")
            word = encode("EXCEPTION", scope="file", file=number, fault=fault)
        self.send(word)

    def fail(self, number, fault):
        """Ends a file with a fault of this side. After EOFR the receiver has the final answer (X-51)."""
        sending = self.sending.get(number)
        if sending and sending.state == "ended":
            sending.state, sending.failing = "cancelling", fault
            self.send(encode("EXCEPTION", scope="file", file=number, fault=fault))
            return
        receiving = self.receiving.get(number)
        if receiving and receiving.sink and fault.code != "integrity-mismatch":
            receiving.sink.checkpoint(receiving.states)
        word = encode("EXCEPTION", scope="file", file=number, fault=fault)
        self.close_file(number, word)
        self.send(word)
        self.file_done(number, fault, [])

    def file_done(self, number, fault, failures):
        """A file is over; for the side that waits for it."""

    # Receiving.

    def accept_offer(self, file, offer, sink):
        """The target of an offer is open."""
        self.send(file.open(offer, sink, self.block))
        if offer["dry_run"]:
            sink.discard()
            self.close_file(file.file, file.accept)
            self.file_done(file.file, None, [])
        else:
            self.publish_if_complete(file)

    def data(self, channel, frame):
        """Takes BLOCK or HOLE."""
        channel.received += 1
        number, hole = frame["file"], frame["frame"] == "HOLE"
        start = frame["start"] if hole else frame["offset"]
        end = frame["end"] if hole else start + len(frame["payload"])
        file = self.receiving.get(number)
        if file is None or file.offer is None:
            if not self.is_used(number):
                raise violation(f"data of file {number}, which was never accepted")
            return
        file.heard = True
        if not file.check_place(start, end, hole):
            return
        if not hole and frame["check"] != digests.check_value(frame["payload"], number, start):
            file.damaged += 1
            if file.damaged > DAMAGED_MAX:
                self.fail(number, Fault("integrity-mismatch", "receive the file", "too many blocks were damaged"))
                return
            file.repeats.add((start, end))
            self.send(encode("REPEAT", file=number, start=start, end=end))
            return
        try:
            file.hold(start, end, None if hole else frame["payload"])
            if file.undurable >= DURABLE_EVERY:
                file.undurable = 0
                file.sink.checkpoint(file.states)
                self.send(encode("DURABLE", file=number, bytes=file.states.total()))
        except (OSError, Fault) as error:
            self.fail(number, as_fault(error, "write the file", file.sink.label))
            return
        self.count_data_frame(channel)
        if not self.ended:
            self.publish_if_complete(file)

    def end_of_file(self, frame):
        """Takes EOFR; the same one if length and digest are (S-18)."""
        number, end = frame["file"], (frame["length"], frame["digest"])
        file = self.receiving.get(number)
        if file is None:
            if not self.is_used(number):
                raise violation(f"EOFR of file {number}, which is unknown")
            self.say_again(number, self.over.get(number, (None, None))[1])
            return
        if file.offer is None:
            raise violation("EOFR before ACCEPT")
        known = file.offer["length"]
        wrong = known is not None and known != end[0]
        if wrong or frame["digest"][0] != file.offer["digest"] or (file.end and file.end != end):
            raise violation("EOFR contradicts the offer, or one before")
        if any(e > end[0] for e, _ in file.states.ranges.values()):
            raise violation("EOFR is below bytes that came")
        file.end, file.heard = end, True
        self.publish_if_complete(file)

    def publish_if_complete(self, file):
        """Verifies and publishes a file of which everything is there (X-26 to X-28)."""
        if file.end is None or file.file not in self.receiving:
            return
        length, (kind, value) = file.end
        own = file.states.digest(length)
        if own is None:
            return
        if own != value:
            file.sink.discard()
            cause = "the digest of what arrived is not that of what was sent"
            self.fail(file.file, Fault("integrity-mismatch", "verify the file", cause))
            return
        try:
            failures = file.sink.publish(length)
        except (OSError, Fault) as error:
            self.fail(file.file, as_fault(error, "publish the file", file.sink.label))
            return
        word = encode("PUBLISHED", file=file.file, length=length, store_wait_permille=0, digest=(kind, own),
                      failures=failures)  # fmt: skip
        self.close_file(file.file, word)
        self.send(word)
        self.file_done(file.file, None, failures)

    # Frames.

    def handle(self, channel, frame):
        """Does what a frame asks for."""
        name = frame["frame"]
        number = frame.get("file")
        sending = self.sending.get(number)
        if name in ("BLOCK", "HOLE"):
            self.data(channel, frame)
        elif name == "EOFR":
            self.end_of_file(frame)
        elif name == "ACK":
            self.acknowledged(channel, frame["data_frames"])
        elif name == "ACCEPT":
            self.accepted(sending, number, frame)
        elif name == "REPEAT":
            if sending and sending.state == "offered":
                raise violation("REPEAT before ACCEPT")
            if sending:
                grid = range(frame["start"], frame["end"], sending.block)
                sending.again += [(at, min(at + sending.block, frame["end"])) for at in grid]
        elif name == "PUBLISHED":
            self.published(sending, frame)
        elif name == "CANCEL" or (name == "EXCEPTION" and frame["scope"] == "file"):
            if number in self.sending or number in self.receiving:
                fault = frame.get("fault") or Fault("cancelled", "move the file", "the peer cancelled")
                self.given_up(number, fault)
        elif name == "EXCEPTION":
            if frame["scope"] == "session":
                raise PeerFault(frame["fault"])
            self.lose(channel)
        elif name == "LEAVE":
            channel.leave_read = True
            if not channel.leave_sent:
                channel.leave_sent = True
                channel.send(encode("LEAVE"))
        elif name == "EOFT":
            self.read_eoft()
        elif name not in ("DURABLE", "NOOP", "CONM"):
            self.begin(channel, frame)

    def given_up(self, number, fault):
        """The peer gave a file up: a receiver answers with CANCEL, its final answer (X-50)."""
        word, receiving = None, self.receiving.get(number)
        if receiving and receiving.offer:
            receiving.sink.checkpoint(receiving.states)
            word = encode("CANCEL", file=number)
        sending = self.sending.get(number)
        self.close_file(number, word)
        if word:  # the target is free now
            self.send(word)
        self.file_done(number, sending and sending.failing or fault, [])

    def acknowledged(self, channel, count):
        """Takes ACK (X-16, X-17)."""
        if not channel.acknowledged <= count <= channel.sent:
            raise violation("ACK counts what was not sent, or less than before")
        for _ in range(count - channel.acknowledged):
            channel.unacknowledged.popleft()
        channel.acknowledged = count

    def accepted(self, sending, number, frame):
        """Takes ACCEPT."""
        if sending is None:
            word = self.over.get(number, (None, None))[1]
            if word:
                self.send(word)
            return
        if sending.offer["pack"] and frame["block_size"] != self.block:
            raise violation("the block size of a pack is that of the session")
        sending.accept(frame)
        if sending.offer["dry_run"]:
            self.close_file(number, None)
            self.file_done(number, None, [])

    def published(self, sending, frame):
        """Takes PUBLISHED (X-29)."""
        if sending is None:
            return
        if sending.state not in ("ended", "cancelling"):
            raise violation("PUBLISHED before EOFR")
        length = sending.offer["length"]
        own = (sending.offer["digest"], sending.states.digest(length))
        fault = None
        if (frame["length"], frame["digest"]) != (length, own):
            fault = Fault("integrity-mismatch", "verify the file", "PUBLISHED tells another digest")
        self.close_file(frame["file"], None)
        self.file_done(frame["file"], fault, frame["failures"])

    def read_eoft(self):
        """The peer is done: for an acceptor files past EOFR were published before (S-25)."""
        self.eoft_read = True
        for number, file in list(self.sending.items()):
            if file.state == "ended" and not self.initiates:
                self.close_file(number, None)
                self.file_done(number, None, [])
        if not self.eoft_sent:
            self.eoft_sent = True
            self.send(encode("EOFT"))
        self.finish()

    def begin(self, channel, frame):
        """Frames that only one of the sides takes."""
        raise violation(f"{frame['frame']} came where it has no place")


class PeerFault(Exception):
    """The peer ended the session."""

    def __init__(self, fault):
        super().__init__(fault)
        self.fault = fault


class Memory:
    """A pack that is sent: bytes in memory."""

    label = b""

    def __init__(self, data):
        self.data = data

    def read(self, start, length):
        """Bytes of a range."""
        return self.data[start : start + length]

    def changed(self):
        """Memory doesn't change."""
        return False

    def close(self):
        """Nothing is open."""


ERRORS = {
    "FileNotFoundError": "not-found",
    "FileExistsError": "already-exists",
    "PermissionError": "permission-denied",
    "IsADirectoryError": "is-a-directory",
    "NotADirectoryError": "not-a-directory",
}


def as_fault(error, operation, path=b""):
    """The fault of an error of the operating system."""
    if isinstance(error, Fault):
        return error
    code = ERRORS.get(type(error).__name__)
    if code is None:
        by_number = {"ENOTEMPTY": "not-empty", "EXDEV": "cross-device", "ENAMETOOLONG": "name-too-long",
                     "ENOSPC": "no-space", "EROFS": "read-only", "EDQUOT": "quota-exceeded"}  # fmt: skip
        names = {getattr(__import__("errno"), name): code for name, code in by_number.items()}
        code = names.get(error.errno, "io")
    return Fault(code, operation, os.strerror(error.errno or 5).lower(), path)
