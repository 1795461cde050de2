"""Whether a request fits the model's window, by the vendor's own count where our estimate cannot tell.

The estimate is one fixed rule for all models, and the tokenizer of a new one may make twice as many tokens of a text.
So near the window a vendor that counts is asked, which costs nothing, before a call is paid that it would refuse.
"""

from __future__ import annotations

from typing import Final

from orchestrator.errors import ProviderFailure
from orchestrator.providers.base import Provider
from orchestrator.values import Request

MARGIN: Final = 2  # what the estimate may be short by


async def over_window(
    provider: Provider, request: Request, estimate: int, window: int | None
) -> ProviderFailure | None:
    """The failure of a request that is known not to fit with its reply; None where it fits, or nobody knows."""
    if window is None or MARGIN * estimate + request.max_output_tokens <= window:
        return None
    tokens = await provider.count(request)
    if tokens is None or tokens + request.max_output_tokens <= window:
        return None
    return ProviderFailure(
        f"{request.model}: the request has {tokens:,} tokens by the provider's count; with a reply of up to "
        f"{request.max_output_tokens:,} that is over the window of {window:,}; nothing was sent",
        hint="read fewer artifacts or fields, lower max_output_tokens, or use another model",
        kind="too_long",
    )
