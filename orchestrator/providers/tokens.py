"""One fixed token estimate, the same on every machine and for every model.

It trims and it guards windows, so it must be a pure function of the bytes: a real tokenizer differs per model and may
not be installed, and then the same project would compose different prompts on two machines. 3.5 UTF-8 bytes per token
errs on the large side for English and code; what a call really cost is what the provider reports.
"""

from __future__ import annotations


def estimate(text: str | bytes) -> int:
    """Tokens of a text: its UTF-8 bytes divided by 3.5, rounded up. Exact integer arithmetic; 0 only for nothing."""
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    return of_bytes(size)


def of_bytes(size: int) -> int:
    """Tokens of that many UTF-8 bytes."""
    return -(-2 * size // 7)
