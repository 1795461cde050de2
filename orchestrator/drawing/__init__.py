"""A pipeline, or a run of it, as a picture: a tree in plain text, Mermaid source, or an SVG.

`picture_of` says what is to be seen (`Picture`: nodes, what each reads and waits for, and in a run its state); `draw`
puts it on paper. Everything is pure and the same picture gives the same bytes, so that drawings can be compared.

All three tell a state by a word and a mark, never by colour alone. Only names of the project reach a drawing, and they
are escaped even so. The SVG has no scripts, no links, no ids and no fonts of its own; it may stand in any page.
"""

from __future__ import annotations

from typing import Literal

from orchestrator.drawing.picture import MARKS, Node, Picture, picture_of

__all__ = ["MARKS", "Format", "Node", "Picture", "draw", "picture_of"]

Format = Literal["text", "mermaid", "svg"]


def draw(picture: Picture, form: Format) -> str:
    """The drawing, without a line end at its end."""
    if form == "text":
        from orchestrator.drawing.tree import tree

        return tree(picture)
    if form == "mermaid":
        from orchestrator.drawing.mermaid import mermaid

        return mermaid(picture)
    from orchestrator.drawing.svg import svg

    return svg(picture)
