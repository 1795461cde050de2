"""The check of a verdict's strengths."""

from typing import Any


def few_enough(value: dict[str, Any], **reads: Any) -> str | None:
    most = reads["most_points"]
    count = len(value["points"])
    return None if count <= most else f"there are {count} points, and at most {most} are wanted"
