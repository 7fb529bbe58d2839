"""libshoal.so.1 by ctypes: the declarations of shoal.h."""

import ctypes
import functools
import os
import pathlib

OK = 0
UNLIMITED = 2**64 - 1
MAX_KEYS = 16777216


class Bytes(ctypes.Structure):
    # c_char_p, so that bytes objects are used where they lie. They keep their zero bytes, as the size counts.
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class Progress(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("text", ctypes.c_char_p),
        ("done", ctypes.c_uint64),
        ("total", ctypes.c_uint64),
        ("due", ctypes.c_uint64),
    ]


ProgressCallback = ctypes.CFUNCTYPE(None, ctypes.POINTER(Progress), ctypes.c_void_p)


class Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("engine", ctypes.c_char_p),
        ("parties", ctypes.POINTER(ctypes.c_uint32)),
        ("party_count", ctypes.c_size_t),
        ("pad", ctypes.c_uint32),
        ("beyond", ctypes.c_int),
        ("progress", ProgressCallback),
        ("user", ctypes.c_void_p),
        ("cancellation", ctypes.c_void_p),
    ]


class Result(ctypes.Structure):
    _fields_ = [
        ("outcome", ctypes.c_int),
        ("value", ctypes.c_void_p),
        ("value_size", ctypes.c_size_t),
        ("error", ctypes.c_char_p),
    ]


_VOID = ctypes.c_void_p
_ERROR = ctypes.POINTER(ctypes.c_void_p)
_FUNCTIONS = {
    "shoal_version": (ctypes.c_char_p, []),
    "shoal_engines": (ctypes.POINTER(ctypes.c_char_p), []),
    "shoal_error_text": (ctypes.c_char_p, [_VOID]),
    "shoal_error_free": (None, [_VOID]),
    "shoal_open": (ctypes.c_int, [ctypes.c_char_p, ctypes.POINTER(_VOID), _ERROR]),
    "shoal_close": (None, [_VOID]),
    "shoal_cancellation_new": (_VOID, []),
    "shoal_cancel": (None, [_VOID]),
    "shoal_cancellation_free": (None, [_VOID]),
    "shoal_lookup": (
        ctypes.c_int,
        [_VOID, ctypes.POINTER(Bytes), ctypes.c_size_t, ctypes.POINTER(Options), ctypes.POINTER(_VOID), _ERROR],
    ),
    "shoal_results_get": (ctypes.c_int, [_VOID, ctypes.c_size_t, ctypes.POINTER(Result)]),
    "shoal_results_traffic": (None, [_VOID, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)]),
    "shoal_results_free": (None, [_VOID]),
    "shoal_prepare": (
        ctypes.c_int,
        [_VOID, ctypes.POINTER(Options), ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), _ERROR],
    ),
}


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, with the types of all functions. ImportError says where it was looked for."""
    named = os.environ.get("SHOAL_LIBRARY")
    beside = pathlib.Path(__file__).with_name("libshoal.so.1")
    path = named or (str(beside) if beside.exists() else "libshoal.so.1")
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"shoal needs libshoal.so.1, and {path} cannot be used ({error}): install Debian's package libshoal1, or set "
            "SHOAL_LIBRARY to the library's path"
        ) from error
    return library


def decode(text: bytes) -> str:
    """A text of the library: UTF-8 but for names of files in it."""
    return text.decode(errors="replace")
