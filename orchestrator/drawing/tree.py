"""The tree in plain text: each step below the last step that it waits for, and referred to below the others.

    discovery · run 12 · inputs: idea
    ├─ ✓ market-sizing · llm · $0.006  ← idea
    │  └─ tech-stack ↓
    └─ ✓ cost-calculator · python
       └─ ! tech-stack · llm · stale  ← market-sizing, cost-calculator

What a step reads stands behind `←`, what it waits for without reading behind `after`. A way that another one implies is
not drawn: a step that reads its grandparent too is shown below its parent only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.drawing.picture import MARKS, Node, Picture

ROOT: Final = ""  # no step is called so


def tree(picture: Picture) -> str:
    nodes = {node.name: node for node in picture.steps}
    direct = picture.direct()
    order = {name: at for at, name in enumerate(nodes)}
    home = {name: max(parents, key=order.__getitem__, default=ROOT) for name, parents in direct.items()}
    below = _below(direct)
    lines = [" · ".join([picture.title, *_inputs(picture)])]
    shown: set[str] = set()
    # A stack rather than recursion: a chain may be longer than Python's.
    waiting = [(name, ROOT, "", at == 0) for at, name in enumerate(reversed(below[ROOT]))]
    while waiting:
        name, parent, indent, last = waiting.pop()
        branch = f"{indent}{'└─ ' if last else '├─ '}"
        if home[name] != parent:
            lines.append(f"{branch}{name} {'↑' if name in shown else '↓'}")
            continue
        shown.add(name)
        lines.append(branch + _line(nodes[name]))
        deeper = indent + ("   " if last else "│  ")
        waiting += [(child, name, deeper, at == 0) for at, child in enumerate(reversed(below[name]))]
    return "\n".join(lines)


def _inputs(picture: Picture) -> list[str]:
    return [f"inputs: {', '.join(picture.inputs)}"] if picture.inputs else []


def _below(direct: Mapping[str, Sequence[str]]) -> Mapping[str, list[str]]:
    """The steps directly below each; those that wait for none stand below `ROOT`."""
    below: dict[str, list[str]] = {ROOT: [], **{name: [] for name in direct}}
    for name, parents in direct.items():
        for parent in parents or [ROOT]:
            below[parent].append(name)
    return below


def _line(node: Node) -> str:
    mark = f"{MARKS.get(node.state, '·')} " if node.state else ""
    rest = [fact for fact in node.facts if not fact.endswith(" succeeded")]
    facts = " · ".join([node.name, *(fact.removeprefix(mark) for fact in rest)])
    reads = (*node.inputs, *node.reads)
    read = f"  ← {', '.join(reads)}" if reads else ""
    needed = f"  after {', '.join(node.needs)}" if node.needs else ""
    return f"{mark}{facts}{read}{needed}"
