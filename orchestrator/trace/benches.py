"""The document of a bench (`orch.bench/1`): its variants' sums, its samples, and where they differ.

Additions are allowed, renames are not. A place that a value does not have is `{"absent": true}`: null is a value.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from orchestrator.exchange.benching import ABSENT, PARTLY, Benched, Difference, Sample, Together, Variant
from orchestrator.trace.documents import usd

BENCH: Final = "orch.bench/1"


def bench_document(benched: Benched) -> dict[str, Any]:
    """`orch.bench/1`. `run` is the number of the run that was benched, `version` its own version of the step."""
    run, sums = benched.run, benched.sums()
    costs = [total.cost_usd for total in sums if total.cost_usd is not None]
    return {
        "schema": BENCH,
        "bench": run.number,
        "run": run.parent_number,
        "step": benched.step,
        "version": benched.base.version if benched.base else None,
        "status": run.status,
        "error": None if run.error is None else {"code": run.error.code, "message": run.error.message},
        "cap_usd": usd(run.cap_usd),
        "cost_usd": usd(sum(costs, Decimal(0))) if costs else None,
        "cost_partial": any(total.cost_partial for total in sums),
        "variants": [_variant(v, t) for v, t in zip(benched.variants, sums, strict=True)],
        "samples": [_sample(benched, sample) for sample in benched.samples],
        "differences": [_difference(found) for found in benched.differences()],
    }


def _variant(variant: Variant, total: Together) -> dict[str, Any]:
    return {
        "name": variant.name,
        "model": variant.model,
        "task": variant.task,
        "changes": list(variant.changes),
        "samples": total.samples,
        "ended": total.ended,
        "passed": total.passed,
        "passed_at_once": total.at_once,
        "reasks": total.reasks,
        "distinct": total.distinct,
        "same_as_version": total.same,
        "input_tokens": total.usage.input_tokens,
        "output_tokens": total.usage.output_tokens,
        "cost_usd": usd(total.cost_usd),
        "cost_partial": total.cost_partial,
        "seconds": round(total.seconds, 3),
    }


def _sample(benched: Benched, sample: Sample) -> dict[str, Any]:
    found = benched.changed(sample)
    compared = benched.base is not None and sample.passed
    return {
        "name": sample.name,
        "variant": sample.variant,
        "status": sample.status,
        "passed": sample.passed,
        "value": sample.value,
        "same_as_version": sample.sha256 == benched.base.sha256 if compared and benched.base else None,
        "changes": [{"kind": one.kind, "path": one.path, "old": one.old, "new": one.new} for one in found],
        "calls": sample.calls,
        "reasks": sample.reasks,
        "faults": list(sample.faults),
        "input_tokens": sample.usage.input_tokens,
        "output_tokens": sample.usage.output_tokens,
        "cost_usd": usd(sample.cost_usd),
        "cost_partial": sample.cost_partial,
        "seconds": round(sample.seconds, 3),
        "error": None if sample.error is None else {"code": sample.error.code, "message": sample.error.message},
    }


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "path": found.path,
        "version": _value(found.base),
        "values": {
            variant: [{**_value(value), "count": count} for value, count in counted]
            for variant, counted in found.values.items()
        },
    }


def _value(value: Any) -> dict[str, Any]:
    if value is ABSENT:
        return {"absent": True}
    return {"differs_in_part": True} if value is PARTLY else {"value": value}
