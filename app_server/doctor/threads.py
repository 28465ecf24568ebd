"""The home and its threads: folders, logs, locks, the index, rollouts of Codex."""

from app_server.doctor.machine import Machine
from app_server.threads.repair.doctor import Check, examine


def check_threads(machine: Machine) -> list[Check]:
    """Read every log."""
    return examine(machine.home, machine.progress)
