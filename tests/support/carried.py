"""Runs that tests carry out."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from faircontext.runs.executors import Executor
from faircontext.runs.plan import Plan
from faircontext.runs.run import run_stored
from faircontext.runs.store import Run


def carry_out(
    plan: Plan,
    out: Path,
    execute: Executor,
    resume: bool,
    facts: Mapping[str, Any],
    warn: Callable[[str], None],
    keep_state: bool = False,
) -> Run:
    """Carry out a plan in its folder below another, and return the run."""
    run, _, _ = run_stored(plan, out / plan.folder_name, execute, resume, facts, warn, keep_state)
    return run
