"""Frames as PNG data addresses, by the standard library."""

from __future__ import annotations

import base64
import struct
import zlib

from torch import Tensor


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(frame: Tensor) -> bytes:
    """(height, width, 3) in [-1, 1] as an 8-bit RGB image."""
    pixels = ((frame.float().cpu().clamp(-1, 1) + 1) * 127.5).round().byte()
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows, 9))
        + _chunk(b"IEND", b"")
    )


def data_address(frame: Tensor) -> str:
    return "data:image/png;base64," + base64.b64encode(png(frame)).decode()
