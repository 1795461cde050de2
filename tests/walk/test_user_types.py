"""`mypy --strict` on a user's pipeline: it accepts what is right and catches wrong types."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

USER = Path(__file__).parents[1] / "typing" / "user_pipeline.py"
CONFIG = "[mypy]\nstrict = true\nplugins = pydantic.mypy\n"


@pytest.mark.slow
def test_strict_mypy_finds_exactly_the_marked_errors_of_a_users_file(tmp_path: Path) -> None:
    """Each ignore hides an error that must be there: without it, exactly that line is reported."""
    bare, marked = tmp_path / "user_pipeline.py", set[int]()
    lines = USER.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if "# type: ignore" in line:
            marked.add(number)
    bare.write_text("\n".join(re.sub(r"  # type: ignore\[.*\]", "", line) for line in lines) + "\n", encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(CONFIG)
    options = ["--config-file", str(tmp_path / "mypy.ini"), "--follow-imports", "silent", "--no-error-summary"]
    options += ["--cache-dir", str(Path(__file__).parents[2] / ".mypy_cache" / "user")]

    said, errors, code = api.run([*options, str(bare)])

    assert errors == ""
    assert code == 1
    assert {int(found) for found in re.findall(r"^[^:\n]+:(\d+): error", said, re.MULTILINE)} == marked, said
