"""Processes that die by SIGKILL before a step of a patch: sitecustomize.py counts the steps."""

from pathlib import Path

FOLDER = Path(__file__).parent

DIE_BEFORE = "TESTS_DIE_BEFORE"
"""The variable that names the step, counted from 0."""


def dying(step: int) -> dict[str, str]:
    """Return variables with which a Python dies before a step."""
    return {"PYTHONPATH": str(FOLDER), DIE_BEFORE: str(step)}
