"""CRC-32C, CRC-64/NVME and BLAKE3, with states of ranges that combine, and checksums.

Written for clarity: some megabytes a second for the CRCs, some hundred kilobytes a second for BLAKE3.
The rules are in frames.md (Digests, F-10) and xftsm.md (Digest of the whole).
"""

import hashlib
import struct
from functools import lru_cache

NONE, CRC64, BLAKE3, SHA256, MD5 = range(5)
NAMES = {"none": NONE, "crc64nvme": CRC64, "blake3": BLAKE3, "sha256": SHA256, "md5": MD5}

CHUNK = 1024  # bytes of a leaf of BLAKE3


# CRCs: reflected, initial and final value all ones.


def _reflected(polynomial, bits):
    return int(f"{polynomial:0{bits}b}"[::-1], 2)


def _table(polynomial):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _table(_reflected(0x1EDC6F41, 32))
_CRC64_POLYNOMIAL = _reflected(0xAD93D23594C93659, 64)
_CRC64 = _table(_CRC64_POLYNOMIAL)
_ONES64 = (1 << 64) - 1


def crc32c(data, crc=0):
    """CRC-32C of `data`, going on from the value `crc` of what stands before it."""
    table = _CRC32C
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def check_value(payload, file, offset):
    """The check value of a block: its payload, then its place (F-10)."""
    return crc32c(struct.pack(">IQ", file, offset), crc32c(payload))


def crc64(data):
    """CRC-64/NVME of `data`."""
    table = _CRC64
    crc = _ONES64
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _ONES64


def _multiply(a, b):
    """The product of two polynomials modulo that of CRC-64; bit 63 is the coefficient of x^0."""
    product = 0
    bit = 1 << 63
    while bit:
        if a & bit:
            product ^= b
        b = (b >> 1) ^ (_CRC64_POLYNOMIAL if b & 1 else 0)
        bit >>= 1
    return product


@lru_cache(maxsize=256)
def _shift(count):
    """x^(8 * count) modulo the polynomial of CRC-64."""
    result, square = 1 << 63, 1 << 55  # x^0, x^8
    while count:
        if count & 1:
            result = _multiply(result, square)
        square = _multiply(square, square)
        count >>= 1
    return result


def crc64_combine(left, right, right_length):
    """The CRC of two ranges that touch: A * x^(8n) + B."""
    return _multiply(left, _shift(right_length)) ^ right


def crc64_zeros(length):
    """The CRC of `length` zeros."""
    return _multiply(_ONES64, _shift(length)) ^ _ONES64


# BLAKE3, its hash mode only.

_IV = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
    0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
_PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_MIXES = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT = 1, 2, 4, 8


def _schedule():
    """Which words of the message each of the seven rounds mixes into which four words."""
    order = list(range(16))
    rounds = []
    for _ in range(7):
        words = zip(order[::2], order[1::2])
        rounds.append([(*mix, *pair) for mix, pair in zip(_MIXES, words)])
        order = [order[i] for i in _PERMUTATION]
    return rounds


_ROUNDS = _schedule()


def _compress(chain, block, length, counter, flags):
    """The compression function; gives the eight words of the chaining value."""
    m = struct.unpack("<16I", block.ljust(64, b"\0"))
    v = [*chain, *_IV[:4], counter & 0xFFFFFFFF, counter >> 32, length, flags]
    mask = 0xFFFFFFFF
    for mixes in _ROUNDS:
        for a, b, c, d, x, y in mixes:
            va = (v[a] + v[b] + m[x]) & mask
            vd = v[d] ^ va
            vd = (vd >> 16) | (vd << 16) & mask
            vc = (v[c] + vd) & mask
            vb = v[b] ^ vc
            vb = (vb >> 12) | (vb << 20) & mask
            va = (va + vb + m[y]) & mask
            vd ^= va
            vd = (vd >> 8) | (vd << 24) & mask
            vc = (vc + vd) & mask
            vb ^= vc
            v[b] = (vb >> 7) | (vb << 25) & mask
            v[a], v[c], v[d] = va, vc, vd
    return tuple(low ^ high for low, high in zip(v[:8], v[8:]))


def _chunk(data, number, root):
    chain = _IV
    blocks = [data[at : at + 64] for at in range(0, len(data), 64)] or [b""]
    for index, block in enumerate(blocks):
        flags = _CHUNK_START if index == 0 else 0
        if index == len(blocks) - 1:
            flags |= _CHUNK_END | (_ROOT if root else 0)
        chain = _compress(chain, block, len(block), number, flags)
    return struct.pack("<8I", *chain)


def blake3_parent(left, right, root=False):
    """The value of a parent from those of its children."""
    flags = _PARENT | (_ROOT if root else 0)
    return struct.pack("<8I", *_compress(_IV, left + right, 64, 0, flags))


def left_length(length):
    """Bytes of the left child of a subtree of `length` bytes, which is more than a chunk."""
    return 1 << ((length - 1).bit_length() - 1)


def blake3_node(data, start=0, root=False):
    """The chaining value of the subtree that `data` is at offset `start`, or the root hash."""
    if len(data) <= CHUNK:
        return _chunk(data, start // CHUNK, root)
    cut = left_length(len(data))
    left = blake3_node(data[:cut], start)
    right = blake3_node(data[cut:], start + cut)
    return blake3_parent(left, right, root)


def blake3(data):
    """The BLAKE3 hash of `data`."""
    return blake3_node(data, root=True)


def checksum(kind, data):
    """The value that the call checksum gives for `data`, by the name of its kind."""
    if NAMES[kind] in (SHA256, MD5):
        return hashlib.new(kind, data).digest()
    return blake3(data) if NAMES[kind] == BLAKE3 else state_of(CRC64, data, 0)


# States of ranges.


def state_of(kind, data, start):
    """The state of the range that `data` is at offset `start`, as ACCEPT carries it."""
    if kind == CRC64:
        return struct.pack(">Q", crc64(data))
    if kind == BLAKE3:
        root = blake3_node(data, 0, root=True) if start == 0 else b""
        return blake3_node(data, start) + root
    return b""


class States:
    """The states of the ranges of one transfer, and the digest of the whole."""

    def __init__(self, kind):
        self.kind = kind
        self.ranges = {}  # start: (end, state)

    def add(self, start, end, state):
        """Takes the state of a range, which must not overlap others. Neighbours combine."""
        if self.kind == BLAKE3:
            start, end, state = self._climb(start, end, state)
        self.ranges[start] = (end, state)
        if self.kind != BLAKE3:
            self._join_neighbours(start)

    def _join_neighbours(self, start):
        before = next((s for s, (e, _) in self.ranges.items() if e == start), None)
        for left in [start] if before is None else [before, before]:
            end, state = self.ranges[left]
            if end not in self.ranges:
                continue
            further, right = self.ranges.pop(end)
            if self.kind == CRC64:
                a, b = (int.from_bytes(s, "big") for s in (state, right))
                state = struct.pack(">Q", crc64_combine(a, b, further - end))
            self.ranges[left] = (further, state)

    def _climb(self, start, end, state):
        """Combines full sibling subtrees upwards, as long as both are there."""
        while True:
            size = end - start
            if size < CHUNK or size & (size - 1) or start % size:
                return start, end, state
            first = start - start % (2 * size)
            other = start ^ size
            if self.ranges.get(other, (0, b""))[0] != other + size:
                return start, end, state
            sibling = self.ranges.pop(other)[1]
            left, right = (state, sibling) if start == first else (sibling, state)
            root = blake3_parent(left[:32], right[:32], True) if first == 0 else b""
            start, end = first, first + 2 * size
            state = blake3_parent(left[:32], right[:32]) + root

    def holds(self, start, end):
        """Whether every byte from `start` to `end` is held."""
        return self.overlap(start, end) == end - start

    def overlap(self, start, end):
        """How many bytes from `start` to `end` are held."""
        parts = (min(end, e) - max(start, s) for s, (e, _) in self.ranges.items())
        return sum(part for part in parts if part > 0)

    def total(self):
        """How many bytes are held."""
        return sum(end - start for start, (end, _) in self.ranges.items())

    def digest(self, length):
        """The digest of all `length` bytes as EOFR carries it, or None if a byte is missing."""
        if not self.holds(0, length):
            return None
        if self.kind == NONE:
            return b""
        if self.kind == CRC64:
            return self.ranges[0][1] if length else bytes(8)
        if length == 0:
            return blake3(b"")
        return self._node(0, length, True)

    def _node(self, start, end, root):
        held, state = self.ranges.get(start, (None, b""))
        if held == end:
            return state[32:] if root else state[:32]
        cut = start + left_length(end - start)
        return blake3_parent(self._node(start, cut, False), self._node(cut, end, False), root)

    def fragments(self):
        """The ranges in ascending order, as (start, end, state)."""
        return sorted((start, end, state) for start, (end, state) in self.ranges.items())
