"""The data files that a step's functions open: they are declared, so that another content is seen as a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.ids import sha256
from orchestrator.project import OutsideProject

if TYPE_CHECKING:
    from orchestrator.building.steps import StepBuilding


def files_of(step: StepBuilding) -> Mapping[str, str]:
    """The hash of each file, by its path in the project; those that are not there are reported."""
    project, base = step.building.project, step.building.base(step.name, "files")
    found: dict[str, str] = {}
    for at, ref in enumerate(step.spec.files):
        place = step.of("files", at)
        try:
            path = project.resolve(ref, base)
            body = path.read_bytes() if path is not None else None
        except OutsideProject:
            step.error("P222", f"the file {ref} leads out of the project", place, "keep it inside the project's folder")
            continue
        except OSError as error:
            step.error("P222", f"the file {ref} cannot be read: {error.strerror}", place, "make it a file you may read")
            continue
        if path is None or body is None:
            step.error("P222", f"there is no file {ref}", place, "paths are relative to the file that names them")
        else:
            found[project.display(path)] = sha256(body)
    return found
