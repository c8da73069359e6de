"""The command line: `cartograd map`, `transform`, `score`, `view`, `explain`, `info`, `bench`."""

from cartograd.cli.program import main as main

__all__ = ["main"]
