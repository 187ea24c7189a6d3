"""Faults of the library as exceptions."""

from __future__ import annotations

import errno
import os


class Fault(OSError):
    """A failure, as every part of xdfs reports it.

    The text is a sentence that names the machine, the operation, the path and the cause. ``code``
    is the stable identity, as in the program's JSON: ``not-found``, ``connection-lost``...
    Subclasses also derive from the exceptions of Python that fit.
    """

    code: str = "internal"
    side: str = "local"
    machine: str | None = None
    operation: str = ""
    path: str = ""
    cause: str = ""
    hint: str = ""
    retry_after: float | None = None
    ends_session: bool = False
    _errno: int | None = None

    def __init__(self, message: str = "", **fields: object) -> None:
        super().__init__(self._errno, message)
        self._message = message
        for name, value in fields.items():
            setattr(self, name, value)
        if self.path:
            self.filename = self.path

    def __str__(self) -> str:
        return f"{self._message} ({self.hint})" if self.hint else self._message

    def __reduce__(self) -> tuple:
        return (_restored, (type(self), self._message, dict(self.__dict__)))


def _restored(kind: type[Fault], message: str, fields: dict) -> Fault:
    fault = kind(message)
    fault.__dict__.update(fields)
    if fault.path:
        fault.filename = fault.path
    return fault


class InvalidArgument(Fault, ValueError):
    """An argument or setting is invalid."""

    _errno = errno.EINVAL


class ConnectionFailed(Fault, ConnectionError):
    """The server can't be reached, or the connection broke and could not be replaced."""


class ConnectionRefused(ConnectionFailed, ConnectionRefusedError):
    """The server can't be reached."""

    _errno = errno.ECONNREFUSED


class ConnectionLost(ConnectionFailed, ConnectionResetError):
    """The connection broke and could not be replaced."""

    _errno = errno.ECONNRESET


class ProtocolFault(ConnectionFailed):
    """The sides don't understand each other."""

    _errno = errno.EPROTO


class DeadlineExceeded(Fault, TimeoutError):
    """The server was silent, or too slow."""

    _errno = errno.ETIMEDOUT


class NotFound(Fault, FileNotFoundError):
    """There is no such file or directory."""

    _errno = errno.ENOENT


class PermissionDenied(Fault, PermissionError):
    """The operating system or the server's policy refuses access."""

    _errno = errno.EACCES


class ReadOnly(PermissionDenied):
    """The server accepts no writes."""

    _errno = errno.EROFS


class LoginFailed(PermissionDenied):
    """The user could not be authenticated, or the server is not the trusted one."""


class AlreadyExists(Fault, FileExistsError):
    """The target exists, and overwriting was not requested."""

    _errno = errno.EEXIST


class IsDirectory(Fault, IsADirectoryError):
    """A directory exists where a file is needed."""

    _errno = errno.EISDIR


class NotDirectory(Fault, NotADirectoryError):
    """A file exists where a directory is needed."""

    _errno = errno.ENOTDIR


class NotEmpty(Fault):
    """The directory is not empty."""

    _errno = errno.ENOTEMPTY


class NoSpace(Fault):
    """The disk or the quota is full."""

    _errno = errno.ENOSPC


class IntegrityMismatch(Fault):
    """The received content differs from what was sent."""

    _errno = errno.EBADMSG


class Stale(Fault):
    """The open file was replaced, or is not open any more."""

    _errno = errno.ESTALE


class Unsupported(Fault):
    """The operation is not supported there."""

    _errno = errno.EOPNOTSUPP


class Cancelled(Fault):
    """The operation was cancelled, or its client was closed."""

    _errno = errno.ECANCELED


class Busy(Fault):
    """Another transfer is writing the same target."""

    _errno = errno.EBUSY


class NameTooLong(Fault):
    """A name is too long for the file system or the limit."""

    _errno = errno.ENAMETOOLONG


_CLASSES: dict[str, type[Fault]] = {
    "invalid-argument": InvalidArgument,
    "connection-refused": ConnectionRefused,
    "connection-lost": ConnectionLost,
    "shutting-down": ConnectionLost,
    "session-unknown": ConnectionLost,
    "bad-magic": ProtocolFault,
    "version-unsupported": ProtocolFault,
    "frame-too-large": ProtocolFault,
    "malformed-frame": ProtocolFault,
    "protocol-violation": ProtocolFault,
    "deadline-exceeded": DeadlineExceeded,
    "not-found": NotFound,
    "path-escape": PermissionDenied,
    "permission-denied": PermissionDenied,
    "read-only": ReadOnly,
    "authentication-failed": LoginFailed,
    "server-untrusted": LoginFailed,
    "protection-refused": LoginFailed,
    "already-exists": AlreadyExists,
    "is-a-directory": IsDirectory,
    "not-a-directory": NotDirectory,
    "not-empty": NotEmpty,
    "no-space": NoSpace,
    "quota-exceeded": NoSpace,
    "integrity-mismatch": IntegrityMismatch,
    "stale": Stale,
    "unsupported": Unsupported,
    "feature-unsupported": Unsupported,
    "cross-device": Unsupported,
    "cancelled": Cancelled,
    "busy": Busy,
    "name-too-long": NameTooLong,
}


def of_fault(
    code: str,
    message: str,
    side: str,
    machine: str | None,
    operation: str,
    path: bytes,
    cause: str,
    hint: str,
    retry_after: float | None,
    ends_session: bool,
) -> Fault:
    """The exception for a fault of the library."""
    return _CLASSES.get(code, Fault)(
        message,
        code=code,
        side=side,
        machine=machine,
        operation=operation,
        path=os.fsdecode(path),
        cause=cause,
        hint=hint,
        retry_after=retry_after,
        ends_session=ends_session,
    )
