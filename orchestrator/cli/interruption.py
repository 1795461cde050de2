"""Whether an ending was a person's Ctrl-C, however Python dressed it."""

from __future__ import annotations


def is_interruption(error: BaseException | None) -> bool:
    """True for a `KeyboardInterrupt` and for an error that was made of one.

    A signal strikes between any two instructions, those of `__set_name__` included, and Python before 3.12 turns what
    is raised there into a `RuntimeError` whose cause it is. Only causes count, not contexts: an error met while an
    interrupt was being answered is an error.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__
    return False
