"""`p.use(…)`: the part of `Pipeline` that takes another pipeline as a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from orchestrator.python.declarations import Declared, Read, Source, StepDeclaration, caller

if TYPE_CHECKING:
    from orchestrator.authoring import Pipeline, Step

R = TypeVar("R")
Given = Mapping[str, "Source[Any] | Read | str | Mapping[str, Any]"]


class Using(Declared):
    """Whatever can use pipelines: `Pipeline` is the only one."""

    @overload
    def use(
        self,
        name: str,
        pipeline: Declared | str,
        /,
        *,
        inputs: Given | None = None,
        produces: type[R],
        for_each: Mapping[str, Any] | None = None,
        when: str | None = None,
        reads: Sequence[Source[Any] | Read | str] = (),
        needs: Sequence[Source[Any] | str] = (),
        description: str | None = None,
    ) -> Step[..., R]: ...
    @overload
    def use(
        self,
        name: str,
        pipeline: Declared | str,
        /,
        *,
        inputs: Given | None = None,
        produces: None = None,
        for_each: Mapping[str, Any] | None = None,
        when: str | None = None,
        reads: Sequence[Source[Any] | Read | str] = (),
        needs: Sequence[Source[Any] | str] = (),
        description: str | None = None,
    ) -> Step[..., Any]: ...
    def use(
        self,
        name: str,
        pipeline: Declared | str,
        /,
        *,
        inputs: Given | None = None,
        produces: Any = None,
        for_each: Mapping[str, Any] | None = None,
        when: str | None = None,
        reads: Sequence[Source[Any] | Read | str] = (),
        needs: Sequence[Source[Any] | str] = (),
        description: str | None = None,
    ) -> Step[..., Any]:
        """Declare a step that another pipeline does: one declared in Python, or one of the project by its name.

        `inputs` are what that pipeline is given: a step or input, a text that names one or a field of one
        (`"plan.goals"`), a `Read` with a guard or default, or `{"value": 3}`. Its steps see nothing else of this one.
        Of what it makes, this one reads its outputs; `produces` is the type of its output where it has one. `for_each`
        does it once for each entry of a list, which an input then is given (`{"item": "rival", "in": "rivals.found",
        "key": "slug"}`). `reads` are looked at by `when` alone.
        """
        from orchestrator.authoring import Step

        said = {"for_each": for_each and dict(for_each), "when": when, "description": description}
        keys = {"uses": pipeline, "with": dict(inputs or {}), **{key: value for key, value in said.items() if value}}
        declared = StepDeclaration(
            name=name, place=caller(), keys=keys, needs=tuple(needs), reads=tuple(reads), produces=produces
        )
        self.declarations.steps.append(declared)
        return Step(cast("Pipeline", self), declared)
