"""Failpoints: die at a named step, so that tests see the result of a crash there.

Source: docs/receiver.md, "Crashes".
"""

import os
import signal
from typing import Literal, TypeAlias

KILL_AT = "APP_SERVER_RECEIVER_KILL_AT"
"""The variable that names the step; without it nothing here does anything."""

Step: TypeAlias = Literal[
    "received",
    "taken",
    "acked",
    "begun",
    "sent",
    "answered",
    "recorded",
    "shown",
    "router:stored",
    "router:sent",
    "router:acked",
    "router:forgotten",
]
"""In the order of a delivery; the last four are the router's."""


def reached(step: Step) -> None:
    """Die by SIGKILL if this is the step that the environment names."""
    if os.environ.get(KILL_AT) == step:
        os.kill(os.getpid(), signal.SIGKILL)
