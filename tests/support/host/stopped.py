"""How a command ends that the server stops."""

STOPPED = (143, 137)
"""Its exit codes: that of SIGTERM, and that of SIGKILL where a busy machine takes 2 s for that."""
