"""What each key of a pipeline, step or contract file means, in one sentence: shown by editors through `orch schema`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PIPELINE: Final[Mapping[str, str]] = {
    "version": "The version of this file format: 1.",
    "pipeline": "The pipeline's name: small letters, digits, - and _.",
    "description": "What the pipeline is for, for people.",
    "inputs": "What a run is given, by name. Inputs and steps share one name space.",
    "artifacts": "Contracts declared here rather than in artifacts/NAME.yaml, by name.",
    "models": "Model aliases, by name; without any, `default` is ORCH_MODEL and `cheap` is ORCH_MODEL_CHEAP.",
    "defaults": "What holds for every step that does not say otherwise.",
    "budget": "The most a run may cost.",
    "system": "Instructions that every request carries. The same bytes for every step.",
    "steps": "The steps, by name. Each makes one artifact, named like the step.",
    "outputs": "The steps whose artifacts are the result; left out, those that no other step waits for.",
}
INPUT: Final[Mapping[str, str]] = {
    "type": "text, string, integer, number, boolean, file, or the name of a contract.",
    "enum": "The words that a string may be, where it may not be any.",
    "about": "What the value represents; needed for text, file and contracts.",
    "not_for": "What the value must not be used for: a list of sentences, or the word none.",
    "default": "The value where none is given; null means that nothing is stated.",
    "sensitivity": "How confidential the value is; providers have a highest class that they may see.",
}
CONTRACT: Final[Mapping[str, str]] = {
    "artifact": "The contract's name; a file's name without .yaml.",
    "about": "What the value represents, and for what it was made. Every reader is told.",
    "not_for": "What the value must not be used for: a list of sentences, or the word none. Every reader is told.",
    "schema": 'text, markdown, file, "file.py:Name" (a pydantic model), or a JSON Schema.',
    "sensitivity": "How confidential the value is; providers have a highest class that they may see.",
    "tags": "Words to select artifacts by.",
    "max_tokens": "The most tokens the value may take.",
    "overflow": "What becomes of a longer value: fail, or readers see its beginning (truncate) or summary (summarise).",
}
READ: Final[Mapping[str, str]] = {
    "read": "The step or input that is read.",
    "from": "Reads what an earlier run made: the last of the same session, or the last that succeeded in the project.",
    "as": "With from: the name that this step knows it by; needed where the pipeline has a step of that name.",
    "type": "With from: the name of its contract; left out, the step's own here, or the read's name.",
    "select": "In place of read: every step that a selection means, as tag:costs; each is read whole.",
    "fields": "Only these top-level fields of its value.",
    "guard": "What this reader must not use the value for, on top of the contract's not_for.",
    "require": "current, or approved: only a version that each gate showing it ahead of this step has approved.",
    "default": "What is read where the step made nothing.",
}
GATE: Final[Mapping[str, str]] = {
    "ask": "The question to the person.",
    "shows": "The steps and inputs the question is about. What is approved is what they hold then.",
    "choices": "What may be answered: approve, edit, reject, stop; left out, all of them.",
    "on_reject": "What a rejection leads to; left out, the gate stays shut until it is approved.",
    "timeout": "What happens where nobody answers.",
}
ON_REJECT: Final[Mapping[str, str]] = {
    "redo": "The step that is made again, with the comment; then the gate asks again.",
    "mode": "follow_up goes on in the step's conversation with its model, fresh begins a new one.",
    "max_rounds": "How often it is made again at most.",
    "then": "Where nothing is made again (any more): pause keeps the gate shut, fail, or go_on with the rejection.",
}
GATE_TIMEOUT: Final[Mapping[str, str]] = {
    "after": "How long the gate waits for an answer: 30m, 2h, 3d.",
    "then": "What is decided then: approve, reject, stop, or wait on.",
}
CHECK: Final[Mapping[str, str]] = {
    "expr": "An expression over the output's fields that must be true: len(points) > 0.",
    "python": "A function file.py:name, called with (value, **reads); returns None, or a message for the model.",
    "message": "What the model is told where the check fails.",
}
CONVERSATION: Final[Mapping[str, str]] = {
    "messages": "At most so many messages of the session's conversation, newest first.",
    "tokens": "At most so many tokens of them.",
}
REPEAT: Final[Mapping[str, str]] = {
    "until": "An expression over the output's fields and what the step reads; the step is good when it is true.",
    "max_rounds": "At most so many visits, the first included.",
    "feedback": "What the next visit is told ahead of its task: a text, or {expr}; left out, which rule does not hold.",
    "then": "Whether the step fails after the last visit, or its last version is accepted.",
}
FEEDBACK: Final[Mapping[str, str]] = {
    "expr": "An expression over the output's fields and what the step reads; its value is the text.",
}
MODEL: Final[Mapping[str, str]] = {
    "use": "provider:model; ${env:NAME} is replaced here.",
    "effort": "How much a reasoning model thinks.",
    "max_output_tokens": "The most tokens an answer may take.",
    "structured": "How a form is asked for: native, by the vendor's own parameter, or prompt, in the task's words.",
    "fallback": "Aliases to ask in its place, in this order, where it does not answer.",
    "background": "Whether the provider goes on with an answer while nobody listens: for long ones.",
    "vendor_context": "What the provider may do to a step's own thread that has grown long. Guards may be lost in it.",
}
VENDOR_CONTEXT: Final[Mapping[str, str]] = {
    "compact_at": "From so many tokens of input on, the provider sums up what stands before.",
    "clear_tools_at": "From so many tokens of input on, the provider leaves out old results of tools.",
}
DEFAULTS: Final[Mapping[str, str]] = {
    "model": "The alias of the model.",
    "reasks": "How often a step is asked again where its answer breaks the contract or a check.",
    "timeout": "How long a step may run in all, resumes included and waits left out: 30s, 10m, 2h.",
    "call_timeout": "How long one request may take: 30s, 10m.",
    "max_usd": "The most that each step may cost in a run, with all its items and attempts, in US dollars.",
    "max_output_tokens": "The most tokens an answer may take.",
    "effort": "How much a reasoning model thinks.",
    "stale_on": "What makes a result stale: any of read, label, contract, definition, template, code, tools, model.",
}
BUDGET: Final[Mapping[str, str]] = {
    "usd": "The cap in US dollars. A call whose worst case would pass it is not sent.",
    "per_call": "The most that one call may cost in US dollars.",
    "per_session": "The most that all runs of a session may cost in US dollars.",
    "on_exceed": "Whether a run at its cap pauses or fails.",
    "unpriced": "Whether a model whose price is not known may be called under a cap.",
}
STEP: Final[Mapping[str, str]] = {
    "step": "The definition's name; its file's name without .yaml.",
    "uses": "A step definition of the shelf steps/, whose keys are replaced by those given here; or another pipeline.",
    "with": "What the inputs of the used pipeline are given: the name of a step or input, STEP.FIELD, or {value}.",
    "description": "What the step is for, for people.",
    "template": "The task: a file of the shelf templates/.",
    "prompt": "The task, written here.",
    "python": "A function file.py:name that makes the value, without a model.",
    "gate": "A question to a person; the steps that need this one wait for the answer.",
    "reads": "What the step is shown: names of steps and inputs, or {read, fields, guard, require, default}.",
    "for_each": "Do the step once for each entry of a list: {item, in, key, where, …}.",
    "needs": "Steps that must be done first, without being read.",
    "produces": "The name of the step's contract; left out, the step's own name.",
    "checks": "Rules on the output: expressions, {expr, message}, or {python, message}: a function (value, **reads).",
    "tools": "Functions file.py:name that the model may call, or {tool, approval, timeout, returns, keep, max_tokens}.",
    "files": "Data files that the step's functions open: another content counts as changed code.",
    "conversation": "How much of the session's visible conversation the step sees, or off.",
    "when": "The step runs only where this is true: an expression over what it reads, len(tech_stack.components) > 0.",
    "repeat": "Visit the step until a rule holds: {until, max_rounds, feedback, then}.",
    "model": "The alias of the step's model.",
    "effort": "How much a reasoning model thinks.",
    "max_output_tokens": "The most tokens an answer may take.",
    "structured": "How a form is asked for: native, by the vendor's own parameter, or prompt, in the task's words.",
    "reasks": "How often the step is asked again where its answer breaks the contract or a check.",
    "timeout": "How long the step may run in all, resumes included and waits left out: 30s, 10m, 2h.",
    "call_timeout": "How long one request may take: 30s, 10m.",
    "max_usd": "The most that the step may cost in a run, with all its items and attempts, in US dollars.",
    "stale_on": "What makes a result stale: any of read, label, contract, definition, template, code, tools, model.",
    "on_input_change": "Where somebody edits what it has read while it runs: redo it once, ask, or keep what it made.",
    "review": "required: a person approves what the step made before any other step reads it.",
    "ungated": "Why this output needs no gate, where the pipeline has some.",
}
TOOL: Final[Mapping[str, str]] = {
    "tool": "A function file.py:name with typed parameters and a docstring; or the provider's web_search or web_fetch.",
    "approval": "required: the step waits until a person allows each call (orch approve RUN/STEP).",
    "timeout": "How long one call may take: 30s, 2m.",
    "returns": "The contract of what it gives: checked, and told to the model with its label and guards.",
    "keep": "The parts of its result that the model is told, as paths: total, items.name. The record keeps all.",
    "max_tokens": "The most of its result that the model is told; the record keeps all.",
    "max_uses": "Of a provider's tool: how often it may be used in one call; left out, 5.",
    "domains": "Of a provider's tool: the only domains it may look at, what is below them included.",
    "blocked": "Of a provider's tool: domains it may not look at.",
}
BIND: Final[Mapping[str, str]] = {
    "read": "The step or input that the input is given, or a field of it: plan.goals. With for_each also the entry.",
    "guard": "What the used pipeline must not use the value for, on top of what is said of it already.",
    "default": "What the input is given where that step made nothing.",
    "value": "A fixed value.",
}
FOR_EACH: Final[Mapping[str, str]] = {
    "item": "What one entry is called, where templates, functions and prompts name it; left out, item.",
    "in": "The list: STEP.FIELD, or INPUT.FIELD, with more fields between dots.",
    "key": "The field of an entry that names it, the same from run to run; left out where entries are texts.",
    "where": "An expression over an entry's fields; entries for which it is false are left out.",
    "at_most": "The most entries there may be.",
    "over": "What happens if there are more: fail, or take_first.",
    "concurrency": "How many of them may be worked on at once; left out, all.",
    "on_error": "fail: one that fails fails the step; collect: the others are used, and readers are told so.",
    "same": "Another step with for_each: the same entries, each of which also reads what that step made of it.",
}
# By the name of the spec model.
KEY_HELP: Final[Mapping[str, Mapping[str, str]]] = {
    "PipelineSpec": PIPELINE,
    "InputSpec": INPUT,
    "ContractSpec": CONTRACT,
    "ReadSpec": READ,
    "GateSpec": GATE,
    "OnRejectSpec": ON_REJECT,
    "GateTimeoutSpec": GATE_TIMEOUT,
    "CheckSpec": CHECK,
    "ConversationSpec": CONVERSATION,
    "RepeatSpec": REPEAT,
    "FeedbackSpec": FEEDBACK,
    "ModelSpec": MODEL,
    "VendorContextSpec": VENDOR_CONTEXT,
    "DefaultsSpec": DEFAULTS,
    "BudgetSpec": BUDGET,
    "ForEachSpec": FOR_EACH,
    "ToolUse": TOOL,
    "StepSpec": STEP,
    "BindSpec": BIND,
}
