"""The version of this package, which is that of all of Shoal's programs."""

VERSION = "0.2.0"
