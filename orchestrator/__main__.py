"""`python -m orchestrator` is `orch`."""

import os
import sys

# Under -m modules are looked for in the current folder first, and it may be a project that nobody trusts yet (S24).
if sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from orchestrator.cli import main

main()
