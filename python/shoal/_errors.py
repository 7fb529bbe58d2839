"""Exceptions, one for each code of the library in C."""

from typing import Dict, Type


class ShoalError(Exception):
    """The root of all. ``str()`` of it is for people; programs decide by the class."""

    code = 13


class CancelledError(ShoalError):
    """The call was cancelled. The same lookup can go on later, as after a crash."""

    code = 1


class InvalidArgumentError(ShoalError, ValueError):
    """An argument or the configuration is wrong. Nothing was asked."""

    code = 3


class DeadlineExceededError(ShoalError):
    """No round took the lookup in the time that the configuration allows."""

    code = 4


class NotFoundError(ShoalError):
    """A file is missing, or the server does not run this engine."""

    code = 5


class PermissionDeniedError(ShoalError):
    """A file cannot be read or written, or others may read it and must not."""

    code = 7


class ResourceExhaustedError(ShoalError):
    """No memory or no room on a disk; or what was prepared is spent (``Client.prepare``)."""

    code = 8


class FailedPreconditionError(ShoalError):
    """Something else has to be done first: the text says what."""

    code = 9


class AbortedError(ShoalError):
    """The rounds of the lookup came to nothing, as often as the configuration allows."""

    code = 10


class UnimplementedError(ShoalError):
    """A server does not do what this version asks for."""

    code = 12


class InternalError(ShoalError):
    """A fault of the library or of a server."""

    code = 13


class UnavailableError(ShoalError):
    """A server could not be reached. The same call may be made again."""

    code = 14


class UntrustedError(ShoalError):
    """Something is not what the parties signed. Do not try again by program: that tells a server which of its wrong
    answers was to a key of yours. Show it to a person."""


class DataLossError(UntrustedError):
    """A server's bytes, or a file, are damaged or not what was signed."""

    code = 15


class UnauthenticatedError(UntrustedError):
    """A server or a signature is not that of the parties that the configuration trusts."""

    code = 16


class UnverifiedError(UntrustedError):
    """The value of a result that failed was asked for."""

    code = 16


class UnknownKeyError(ShoalError):
    """The value of a result was asked for that is unknown: the key may be in the table or not. Nothing went wrong. Do
    not ask again before you would have done so anyway."""

    code = 9


class BusyError(ShoalError):
    """Another lookup uses the state: another client of this process, or another process."""

    code = 100


_BY_CODE: Dict[int, Type[ShoalError]] = {
    kind.code: kind
    for kind in (
        CancelledError,
        InvalidArgumentError,
        DeadlineExceededError,
        NotFoundError,
        PermissionDeniedError,
        ResourceExhaustedError,
        FailedPreconditionError,
        AbortedError,
        UnimplementedError,
        InternalError,
        UnavailableError,
        DataLossError,
        UnauthenticatedError,
        BusyError,
    )
}


def error_of(code: int, text: str) -> ShoalError:
    """The exception for a code; ``ShoalError`` itself for one that this version does not know."""
    error = _BY_CODE.get(code, ShoalError)(text)
    error.code = code
    return error
