"""Buffers of any items as bytes, as the files of Python take them."""

from __future__ import annotations

from typing import Any


def to_read(data: Any) -> Any:
    """The bytes of a buffer, copied only if its items are of a kind that can't be seen as bytes."""
    if isinstance(data, (bytes, bytearray)):
        return data
    view = memoryview(data)
    try:
        return view.cast("B")
    except (TypeError, ValueError):
        return view.tobytes()


def to_fill(buffer: Any) -> Any:
    """The bytes of a buffer that can be written to in one piece; others are refused later."""
    if isinstance(buffer, bytearray):
        return buffer
    view = memoryview(buffer)
    try:
        return view.cast("B")
    except (TypeError, ValueError):
        pass
    if view.readonly or not view.c_contiguous:
        return view
    if not view.nbytes:
        return bytearray()
    # Items of another byte order, and records.
    import ctypes

    return (ctypes.c_ubyte * view.nbytes).from_buffer(buffer)
