"""Which model a step calls: step over alias over `defaults`, and where the alias comes from.

Pipelines name aliases, never a vendor's model, so that one variable moves a whole pipeline. A pipeline without `models`
has the aliases `default` and `cheap`, which are ORCH_MODEL and ORCH_MODEL_CHEAP. An alias `summarise` sums up what is
too large to be read whole (`overflow: summarise`); without it, the reading step's own model does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.errors import ConfigError, Diagnostic, Place
from orchestrator.faults import nearest
from orchestrator.graph import ModelChoice
from orchestrator.settings import MissingVariable, Settings, substitute_env
from orchestrator.spec import ModelSpec, PipelineSpec, Places, StepSpec, VendorContextSpec
from orchestrator.values import ContextEdits

DEFAULT_MAX_OUTPUT: Final = 8000
BUILT_IN: Final = {"default": "ORCH_MODEL", "cheap": "ORCH_MODEL_CHEAP"}
SUMMARISE: Final = "summarise"
EXAMPLE: Final = "openai:gpt-6-luna"


@dataclass(frozen=True, slots=True)
class Unset:
    """An alias whose variable is not set: a warning where a pipeline is checked, an error where it is run."""

    alias: str
    variable: str
    place: Place
    source: str | None

    def warning(self) -> Diagnostic:
        return Diagnostic("P243", self._message(), self.place, self._hint(), self.source, "warning")

    def error(self) -> ConfigError:
        return ConfigError(self._message(), hint=self._hint(), code="no_model", place=self.place)

    def _message(self) -> str:
        return f"no model is set: the alias {self.alias} is ${{env:{self.variable}}}, and {self.variable} is not set"

    def _hint(self) -> str:
        return f"run: export {self.variable}={EXAMPLE}    (or scripted:DIR, for written answers without a key)"


@dataclass(slots=True)
class Models:
    """The aliases of one pipeline. Faults of an alias are reported once, through `report`."""

    spec: PipelineSpec
    settings: Settings
    places: Places
    report: Callable[[Diagnostic], None]
    unset: dict[str, Unset]
    _known: dict[str, tuple[str, str] | None]

    @classmethod
    def of(cls, spec: PipelineSpec, settings: Settings, places: Places, report: Callable[[Diagnostic], None]) -> Models:
        return cls(spec, settings, places, report, {}, {})

    def lent(self, spec: PipelineSpec, places: Places, report: Callable[[Diagnostic], None]) -> Models:
        """These aliases for a pipeline that declares none and is used by the one they belong to."""
        borrowed = spec.model_copy(update={"models": self.spec.models})
        return Models(borrowed, self.settings, places, report, self.unset, self._known)

    def choose(self, name: str, step: StepSpec) -> ModelChoice | None:
        """The model of a step; None where it is not set, or wrong (and then reported)."""
        alias = step.model or self.spec.defaults.model
        target = self.target(alias, self._alias_place(name, step))
        if target is None:
            return None
        declared = self.spec.models.get(alias)
        others = [self._choice(other, step) for other in self._fallbacks(alias, declared)]
        return replace(self._chosen(alias, target, step), fallbacks=tuple(filter(None, others)))

    def summarise(self) -> ModelChoice | None:
        """The model of the alias that sums up what is too large for a step; None where the pipeline has none."""
        if SUMMARISE not in self.spec.models:
            return None
        return self.choose(SUMMARISE, StepSpec(model=SUMMARISE))

    def _choice(self, alias: str, step: StepSpec) -> ModelChoice | None:
        target = self.target(alias, self.places.of("models", alias))
        return self._chosen(alias, target, step) if target is not None else None

    def _chosen(self, alias: str, target: tuple[str, str], step: StepSpec) -> ModelChoice:
        """An alias with its parameters for a step: what the step says holds for its fallbacks too."""
        declared = self.spec.models.get(alias) or ModelSpec(use=":".join(target))
        defaults = self.spec.defaults
        return ModelChoice(
            alias=alias,
            provider=target[0],
            model=target[1],
            effort=step.effort or declared.effort or defaults.effort,
            max_output_tokens=step.max_output_tokens
            or declared.max_output_tokens
            or defaults.max_output_tokens
            or DEFAULT_MAX_OUTPUT,
            structured=step.structured
            or declared.structured
            or self.settings.providers[target[0]].structured
            or "native",
            background=declared.background,
            edits=_edits(declared.vendor_context),
        )

    def _fallbacks(self, alias: str, declared: ModelSpec | None) -> tuple[str, ...]:
        """The aliases that are there of those an alias falls back on. What is wrong with them, `check_all` reports."""
        named = declared.fallback if declared is not None else ()
        return tuple(other for other in dict.fromkeys(named) if other in self.spec.models and other != alias)

    def check_all(self) -> None:
        """Report what is wrong with aliases that no step uses, too."""
        for alias, declared in self.spec.models.items():
            self.target(alias, self.places.of("models", alias))
            place = self.places.of("models", alias, "fallback")
            for other in declared.fallback:
                if other == alias:
                    self._error("P240", f"model alias {alias} falls back on itself", place, "name another alias")
                elif other not in self.spec.models:
                    self._unknown(other, place)

    def target(self, alias: str, used_at: Place) -> tuple[str, str] | None:
        """(provider, model) of an alias."""
        if alias not in self._known:
            self._known[alias] = self._resolve(alias, used_at)
        return self._known[alias]

    def _alias_place(self, name: str, step: StepSpec) -> Place:
        return self.places.of("steps", name, "model") if step.model else self.places.of("defaults", "model")

    def _resolve(self, alias: str, used_at: Place) -> tuple[str, str] | None:
        declared = self.spec.models.get(alias)
        if declared is not None:
            place = self.places.of("models", alias, "use")
            return self._substituted(alias, declared.use, place)
        if self.spec.models or alias not in BUILT_IN:
            self._unknown(alias, used_at)
            return None
        found = self.settings.model(alias)
        if found is None:
            self.unset[alias] = Unset(alias, "ORCH_MODEL", used_at, self.places.line(used_at))
            return None
        return self._split(alias, found, used_at)

    def _unknown(self, alias: str, place: Place) -> None:
        names = list(self.spec.models) or list(BUILT_IN)
        hint = nearest(alias, names)
        if ":" in alias:
            hint = f"steps name aliases; declare one under models: {{default: {{use: {alias!r}}}}}"
        self._error("P240", f"there is no model alias {alias}", place, hint)

    def _substituted(self, alias: str, use: str, place: Place) -> tuple[str, str] | None:
        try:
            text = substitute_env(use, self.settings.env)
        except MissingVariable as missing:
            self.unset[alias] = Unset(alias, missing.name, place, self.places.line(place))
            return None
        except ConfigError as error:
            self._error("P241", f"model alias {alias}: {error.message}", place, error.hint)
            return None
        return self._split(alias, text, place)

    def _split(self, alias: str, text: str, place: Place) -> tuple[str, str] | None:
        provider, colon, model = text.strip().partition(":")
        if not (provider and colon and model) or any(char.isspace() for char in provider):
            self._error(
                "P241", f"model alias {alias}: {text!r} is not a model", place, f"write provider:model, like {EXAMPLE}"
            )
            return None
        if provider not in self.settings.providers:
            hint = nearest(provider, list(self.settings.providers))
            self._error("P242", f"model alias {alias}: there is no provider {provider}", place, hint)
            return None
        return provider, model

    def _error(self, code: str, message: str, place: Place, hint: str | None) -> None:
        self.report(Diagnostic(code, message, place, hint, self.places.line(place)))


def _edits(said: VendorContextSpec | None) -> ContextEdits | None:
    """What the provider may do to a thread; None where nothing of it is asked for."""
    edits = ContextEdits(said.compact_at, said.clear_tools_at) if said is not None else None
    return edits if edits is not None and edits.kinds else None
