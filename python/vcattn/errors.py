"""Typed errors, each also the built-in exception that a caller would expect."""

from __future__ import annotations


class Error(Exception):
    """Base of everything vcattn raises. ``where`` names the argument the message is about."""

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


class InvalidArgumentError(Error, ValueError):
    """Nothing could accept the argument; the message says what is supported."""


class UnsupportedError(Error, NotImplementedError):
    """Well formed, but not by this build, device or recipe."""


class OutOfMemoryError(Error, MemoryError):
    """Workspace or output could not be allocated."""


class DeviceError(Error, RuntimeError):
    """The device or its driver reported a failure."""


class FileError(Error, OSError):
    """A file could not be read or written, or lies about its contents."""


class InternalError(Error, RuntimeError):
    """A defect of the library."""


class LibraryLoadError(Error, ImportError):
    """The shared library is missing or belongs to another version of this package."""


# vcattn_status of vcattn/c.h.
BY_STATUS: dict[int, type[Error]] = {
    1: InvalidArgumentError,
    2: UnsupportedError,
    3: OutOfMemoryError,
    4: FileError,
    5: DeviceError,
    6: InternalError,
}
