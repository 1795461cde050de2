"""Foreign text made harmless: what a model, a file or a server wrote, on its way to a terminal, page or spreadsheet.

It may neither move a cursor, nor reorder a line, nor become a formula or a tag (S27).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Cf holds joiners that real scripts need; only those that reorder text or hide a line end are spelled out.
_REORDERING = frozenset("\u061c\u200e\u200f\u2028\u2029\ufeff") | {
    chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x2070))
}
_KEPT = frozenset("\n\t")
# Fullwidth too, as programs take them in some languages; and behind a byte order mark, which a file's first cell loses.
_FORMULA: Final = re.compile(r"'*[\ufeff\u200b-\u200f\u2060\x00]*[=+\-@\t\r\n＝＋－＠]")


def visible(text: str, *, one_line: bool = False) -> str:
    """Foreign text for a terminal: dangerous characters spelled out; line ends stay unless `one_line`."""
    text = " ".join(text.split()) if one_line else text.replace("\r\n", "\n")
    return "".join(_spelled(char) if _dangerous(char) else char for char in text)


def _dangerous(char: str) -> bool:
    if char in _KEPT:
        return False
    return char in _REORDERING or unicodedata.category(char) in ("Cc", "Cs")


def _spelled(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def spreadsheet_cell(text: str) -> str:
    """A text for a cell of a CSV file: what a spreadsheet would take for a formula gets a `'` in front.

    So does a text that begins like one guarded before, so that `from_spreadsheet` gives back exactly what was there.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def from_spreadsheet(cell: str) -> str:
    """The text that `spreadsheet_cell` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
