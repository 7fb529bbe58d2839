"""Private lookups in a public table: nobody learns which keys are asked for.

    import shoal

    with shoal.open() as client:
        for name, result in client.lookup(["bash", "openssl"]):
            print(name, result.value)      # bytes, or None: proved to be absent

    async with shoal.open_async() as client:
        results = await client.lookup(names)

What nobody may see, or be able to guess from what the program does next, is what a lookup returned. So do not ask
again because a result failed (``Result.failed``) or because of an ``UntrustedError``, do not fetch something at once
because of a value, and ask for all keys in one call rather than for one after the other. docs/library.md says more.

The package calls libshoal.so.1, the library in C. It takes the one that the environment variable SHOAL_LIBRARY names, or
one that lies in this package's folder, or the system's.
"""

from ._aio import AsyncClient, open_async
from ._client import Beyond, Cancellation, Client, Progress, ProgressKind, engines, library_version, open
from ._errors import (
    AbortedError,
    BusyError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    ShoalError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownKeyError,
    UntrustedError,
    UnverifiedError,
)
from ._results import Key, Outcome, Result, Results
from ._version import VERSION as __version__

__all__ = [
    "AbortedError",
    "AsyncClient",
    "Beyond",
    "BusyError",
    "CancelledError",
    "Cancellation",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "Key",
    "NotFoundError",
    "Outcome",
    "PermissionDeniedError",
    "Progress",
    "ProgressKind",
    "ResourceExhaustedError",
    "Result",
    "Results",
    "ShoalError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownKeyError",
    "UntrustedError",
    "UnverifiedError",
    "__version__",
    "engines",
    "library_version",
    "open",
    "open_async",
]
