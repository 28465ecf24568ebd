"""The table of all checks, in the order of the report."""

from collections.abc import Sequence

from app_server.cli.checks.clock import check_clock
from app_server.cli.checks.config import check_config
from app_server.cli.checks.disk import check_disk
from app_server.cli.checks.filing import check_filing
from app_server.cli.checks.keyring import check_keyring
from app_server.cli.checks.limits import check_limits
from app_server.cli.checks.mcp_servers import MCP_S, check_mcp_servers
from app_server.cli.checks.model import check_model
from app_server.cli.checks.modes import check_modes
from app_server.cli.checks.ports import check_ports
from app_server.cli.checks.running import CheckSpec
from app_server.cli.checks.sandbox import check_sandbox
from app_server.cli.checks.signals import check_signals
from app_server.host.sandbox.probe import PROBE_S
from app_server.threads.repair import examine

THREADS_S = 3600.0
"""For reading every log of a home, at some hundred MiB a second."""

CHECKS: Sequence[CheckSpec] = (
    CheckSpec(
        name="threads",
        blocking=lambda machine: examine(machine.home, machine.progress),
        bound_s=THREADS_S,
    ),
    CheckSpec(name="filing", blocking=check_filing),
    CheckSpec(name="signals", blocking=check_signals),
    CheckSpec(
        name="disk",
        blocking=check_disk,
        when_overdue="the disk does not answer: look at the mount that the home is on",
    ),
    CheckSpec(name="modes", blocking=check_modes),
    CheckSpec(name="config", blocking=check_config),
    CheckSpec(
        name="keyring",
        blocking=check_keyring,
        when_overdue="unlock the keyring of the desktop session, or keep credentials in files: "
        'cli_auth_credentials_store = "file", mcp_oauth_credentials_store = "file"',
    ),
    CheckSpec(
        name="model",
        waiting=check_model,
        when_overdue="the model provider does not answer: look at the network and the proxy",
    ),
    CheckSpec(
        name="mcp",
        waiting=check_mcp_servers,
        bound_s=MCP_S,
        when_overdue="some MCP server neither starts nor fails: run its command by hand",
    ),
    CheckSpec(name="sandbox", blocking=check_sandbox, bound_s=PROBE_S + 5),
    CheckSpec(name="ports", blocking=check_ports),
    CheckSpec(name="clock", blocking=check_clock),
    CheckSpec(name="limits", blocking=check_limits),
)
"""`threads` gives six: home, logs, locks, index, history, codex."""
