"""The command line `orch`: parse → one library call → print.

Importing this package loads nothing heavy: the commands live in modules of their own, imported when they are used, so
that `orch --help` needs neither a vendor's SDK nor a database library.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console script `orch`."""
    try:
        from orchestrator.cli.app import run

        code = run(sys.argv[1:])
    except BaseException as error:
        from orchestrator.cli.interruption import is_interruption

        if not is_interruption(error):
            raise
        # Before or after the command itself, which answers it better.
        sys.stderr.write("interrupted\n")
        code = 130
    sys.exit(code)
