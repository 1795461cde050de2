"""Files that go to a model as they are: pictures and PDF documents, told by their first bytes. Pure.

What a file is, its name does not say and its sender may get wrong; its bytes do. Anything that is UTF-8 text goes into
the prompt as text, like every other value. What is neither text nor one of these kinds is refused before anything is
sent.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final, Literal

from orchestrator.ids import sha256
from orchestrator.values import Attachment

Kind = Literal["image", "pdf"]
# What both vendors take; the smaller of their limits.
MOST_BYTES: Final[Mapping[Kind, int]] = {"image": 5_000_000, "pdf": 20_000_000}
MOST_IN_ALL: Final = 22_000_000  # a request in base64 stays under 32 MB
# Tokens that a picture, and a page of a document (its text and its picture), are taken to weigh.
IMAGE_TOKENS: Final = 1_600
PAGE_TOKENS: Final = 3_000
_ENDINGS: Final[Mapping[str, str]] = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "application/pdf": ".pdf",
}
_PAGE: Final = re.compile(rb"/Type\s*/Page(?![a-zA-Z])")
_KINDS: Final = "PNG, JPEG, GIF, WebP and PDF"


class NotSendable(ValueError):
    """A file that no model can be sent, in words, and what can be done about it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def media_of(body: bytes) -> str | None:
    """The media type of a picture or a PDF; None for all else."""
    if body.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if body.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if body[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if body.startswith(b"%PDF-") else None


def is_text(body: bytes) -> bool:
    """Whether a file can stand in a prompt like every other value. No text holds a zero byte, though UTF-8 has it."""
    if media_of(body) is not None or b"\0" in body:
        return False
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def ending_of(body: bytes) -> str:
    """The ending of a name for a file with these bytes."""
    media = media_of(body)
    return _ENDINGS[media] if media is not None else ".txt" if is_text(body) else ".bin"


def told(body: bytes) -> str:
    """What a file is, for people; two that differ are told apart."""
    return f"{media_of(body) or 'a file that is no text'}, {len(body):,} bytes, sha256 {sha256(body)[:12]}…"


def kind_of(media: str) -> Kind:
    return "pdf" if media == "application/pdf" else "image"


def attached(name: str, body: bytes) -> Attachment:
    """A file as it is sent. Raises NotSendable for one that is too large, or of a kind that models do not take."""
    media = media_of(body)
    if media is None:
        raise NotSendable(
            f"neither UTF-8 text nor a file that models take ({_KINDS})",
            "give the text of the file as the input, or read it in a Python step",
        )
    most = MOST_BYTES[kind_of(media)]
    if len(body) > most:
        raise NotSendable(
            f"{len(body):,} bytes, and of {media} a model takes {most:,} at most",
            "give a smaller one, or read it in a Python step",
        )
    return Attachment(name, media, body, weight(media, body))


def weight(media: str, body: bytes) -> int:
    """About how many tokens a file takes. A compressed PDF does not show its pages: then it is taken by its size."""
    if kind_of(media) == "image":
        return IMAGE_TOKENS
    pages = len(_PAGE.findall(body)) or 1 + len(body) // 50_000
    return pages * PAGE_TOKENS


def placeholder(attachment: Attachment) -> str:
    """What stands for a file where its text would be."""
    return f"[attached file: {attachment.media}, {len(attachment.body):,} bytes]"


def label(attachment: Attachment) -> str:
    """What is said right ahead of a file, so that the text can be read with it."""
    return f"[File of the artifact {attachment.name}]"


def file_name(attachment: Attachment) -> str:
    """What a document is called: by its artifact, an item's key behind it."""
    return f"{attachment.name.replace('/', '-')}.pdf"


def data_url(attachment: Attachment) -> str:
    """A file as text, with its type ahead."""
    return f"data:{attachment.media};base64,{base64_of(attachment)}"


def base64_of(attachment: Attachment) -> str:
    return base64.b64encode(attachment.body).decode()
