"""Defines the version of the package; the build reads it from this file."""

__version__ = "0.1.0"
