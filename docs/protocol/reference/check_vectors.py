"""Checks this reference against the vectors: `python3 check_vectors.py [FOLDER]`.

Every message is decoded, compared with its fields, and encoded again; everything that has to be refused is.
"""

import json
import sys
from pathlib import Path

import digests
import packs
import wire


def same(own, told):
    """Whether a value is the one that a vector tells, whatever its notation."""
    if isinstance(own, wire.Fault):
        retry = {"after_ms": own.retry} if isinstance(own.retry, int) else own.retry
        parts = {"operation": own.operation, "path": own.path, "cause": own.cause, "hint": own.hint}
        parts |= {"code": wire.CODE_NUMBER[own.code], "code_name": own.code, "retry": retry}
        return same(parts, told)
    if isinstance(own, bytes):
        return told in (own.hex(), own.decode(errors="replace")) or (told is None and not own)
    if isinstance(own, (list, tuple)):
        return isinstance(told, list) and len(own) == len(told) and all(map(same, own, told))
    if isinstance(own, dict):
        return isinstance(told, dict) and all(k in own and same(own[k], v) for k, v in told.items())
    if isinstance(own, bool) or own is None:
        return own == told
    return own == told or str(own) == told


def as_told(message):
    """A message with the names and shapes that the vectors have."""
    m = dict(message)
    kind = m.get("frame")
    if kind == "ACCEPT":
        m["durable"] = [fragment(m["digest"], f) for f in m["durable"]]
    if kind in ("HOLE", "REPEAT"):
        m["range"] = {"start": m["start"], "end": m["end"]}
    if kind == "BLOCK":
        m["length"] = len(m["payload"])
    if kind == "EXCEPTION":
        m["scope"] = {"file": m["file"]} if m["scope"] == "file" else m["scope"]
    if kind == "PUBLISHED":
        m["failures"] = [{"first": a, "count": n, "fault": f} for a, n, f in m["failures"]]
    if isinstance(m.get("digest"), tuple):
        name, value = m["digest"]
        m["digest"] = {"kind": name, "value": value} if value else {"kind": name}
    for key in ("blocks", "pieces"):
        if kind and key in m:
            m[key] = [{**x, "state": state(m["digest"], x["state"])} for x in m[key]]
    for key in ("list", "parcels"):
        if key in m:
            m[key] = [as_told(one) for one in m[key]]
    for key in ("fragments", "held"):
        if kind and key in m:
            m[key] = [fragment("crc64nvme" if len(f[2]) == 8 else "blake3", f) for f in m[key]]
    if "features" in m:
        m["features"] = [{"id": i, "name": n, "value": v} for i, n, v in m["features"]]
    return m


def state(digest, data):
    """The state of a range as vectors tell it."""
    if digest == "blake3":
        return {"node": data[:32], "root": data[32:]} if data[32:] else {"node": data[:32]}
    return data


def fragment(digest, piece):
    """A durable range as vectors tell it."""
    start, end, data = piece
    told = {"start": start, "end": end}
    if digest == "crc64nvme":
        told["crc64nvme"] = data
    elif digest == "blake3":
        told |= state(digest, data)
    return told


def decode_any(data, role=None):
    """The message of a frame, or in a role of the opening, and its bytes made again."""
    if role is None:
        message = wire.decode(data)
        return message, wire.encode(message)
    decoded = wire.decode_opening(data, role)
    if decoded is None:
        raise wire.Fault("malformed-frame", "open the channel", "the message is cut")
    message, length = decoded
    if length != len(data):
        raise wire.Fault("malformed-frame", "open the channel", "bytes follow")
    if message["message"] == "HELLO":
        again = wire.hello(message["service"], message["version_min"], message["version_max"], message["features"])
    elif message["message"] == "WELCOME":
        again = wire.welcome(message["version"], message["features"])
    else:
        again = wire.refusal(message["fault"])
    return message, again


def role_of(group, name):
    """In whose role a message of the opening is read."""
    if group["group"] != "opening":
        return None
    return 0 if name.startswith("hello") else 1


def check_messages(group, check):
    """Frames, blocks and the opening."""
    for vector in group["vectors"]:
        data = bytes.fromhex(vector["hex"])
        message, again = decode_any(data, role_of(group, vector["name"]))
        check(again == data, vector["name"], f"encoded again it is {again.hex()}")
        check(same(as_told(message), vector["fields"]), vector["name"], f"decoded as {as_told(message)}")
        if message.get("frame") == "BLOCK":
            right = digests.check_value(message["payload"], message["file"], message["offset"])
            check(message["check"] in (right, 0), vector["name"], "the check value differs")
    for vector in group["negative"]:
        try:
            message, _ = decode_any(bytes.fromhex(vector["hex"]), role_of(group, vector["name"]))
            check(False, vector["name"], f"taken for {message}")
        except wire.Fault as fault:
            check(fault.code == vector["code"], vector["name"], f"refused with {fault.code}")


def check_packs(group, check):
    """Whole packs."""
    for vector in group["vectors"]:
        data = bytes.fromhex(vector["hex"])
        entries = packs.decode_entries(data)
        check(packs.encode_entries(entries) == data, vector["name"], "encoded again it differs")
        check(same(entries, vector["fields"]["entries"]), vector["name"], f"decoded as {entries}")
    for vector in group["negative"]:
        try:
            packs.decode_entries(bytes.fromhex(vector["hex"]))
            check(False, vector["name"], "taken")
        except wire.Fault as fault:
            check(fault.code == vector["code"], vector["name"], f"refused with {fault.code}")


def check_digests(group, check):
    """States of blocks, what combines, and the digest of the whole."""
    for vector in group["vectors"]:
        fields, name = vector["fields"], vector["name"]
        length, kind = int(fields["length"]), digests.NAMES[fields["kind"]]
        zeros = range(int(fields["zeros"]["start"]), int(fields["zeros"]["end"]))
        content = bytes(0 if i in zeros else (i * 7 + i // 251) % 256 for i in range(length))
        states, late = digests.States(kind), []
        for number, block in enumerate(fields["blocks"]):
            start, end = int(block["start"]), int(block["end"])
            data = content[start:end]
            own = digests.state_of(kind, data, start)
            check(own.hex() == told_state(block), name, f"the state of block {number} differs")
            value = f"{digests.check_value(data, 1, start):08x}"
            check(value == block["crc32c"], name, f"the check value of block {number} differs")
            (late if number % 4 == 3 else [None]).append((start, end, own))
            if number % 4 != 3:
                states.add(start, end, own)
        combined = [(int(c["start"]), int(c["end"]), told_state(c)) for c in fields["combined"]]
        own = [(start, end, data.hex()) for start, end, data in states.fragments()]
        check(own == combined, name, "what combined differs")
        for piece in late:
            states.add(*piece)
        check(states.digest(length).hex() == fields["digest"]["value"], name, "the digest differs")


def told_state(block):
    """The state of a range in digests.json, in hexadecimal."""
    return block.get("crc64nvme") or block["node"] + block.get("root", "")


def check_session(group, check):
    """A whole session: every message on its channel, one after the other."""
    for vector in group["vectors"]:
        for number, step in enumerate(vector["steps"]):
            if "hex" not in step:
                continue
            data = bytes.fromhex(step["hex"])
            name = f"{vector['name']}, step {number}"
            opening = {"HELLO": 0, "WELCOME": 1, "REFUSED": 1}
            message, again = decode_any(data, opening.get(step["fields"].get("message")))
            check(again == data, name, f"encoded again it is {again.hex()}")
            check(same(as_told(message), step["fields"]), name, f"decoded as {as_told(message)}")
            if message.get("frame") == "BLOCK":
                right = digests.check_value(message["payload"], message["file"], message["offset"])
                check((message["check"] == right) != step.get("damaged", False), name, "the check value differs")


CHECKS = {
    "frames": check_messages,
    "blocks": check_messages,
    "opening": check_messages,
    "packs": check_packs,
    "digests": check_digests,
    "session": check_session,
}


def main():
    """Checks every group that this reference speaks; those of protected channels are left out."""
    default = Path(__file__).resolve().parents[3] / "vectors"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    wrong, checked = [], 0

    def check(right, name, what):
        nonlocal checked
        checked += 1
        if not right:
            wrong.append(f"{path.name}: {name}: {what}")

    for path in sorted(folder.glob("*.json")):
        group = json.loads(path.read_text())
        if path.stem in CHECKS:
            CHECKS[path.stem](group, check)
    for line in wrong:
        print(line)
    print(f"{checked} checks, {len(wrong)} wrong")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
