"""The version of this package, which is that of all of Shoal's programs as PEP 440 writes it."""

VERSION = "0.3.0.dev0"
