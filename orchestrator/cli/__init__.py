"""The command line `orch`: parse → one library call → print.

Importing this package loads nothing heavy: the commands live in modules of their own, imported when they are used, so
that `orch --help` needs neither a vendor's SDK nor a database library.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console script `orch`."""
    from orchestrator.cli.app import run

    sys.exit(run(sys.argv[1:]))
