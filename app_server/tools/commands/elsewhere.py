"""Commands on other machines: what confines them there.

Source: docs/environments.md, "Commands in an environment".
"""

from dataclasses import replace

from app_server.host.exec.command import CommandOrder
from app_server.permissions.confinement import Confinement
from protocol.policy import DangerFullAccessSandboxPolicy, ReadOnlySandboxPolicy


def confined_order(order: CommandOrder, confinement: Confinement) -> CommandOrder:
    """Give a command the policy that comes nearest to what confines it."""
    if not confinement.is_confined:
        return replace(order, sandbox_policy=DangerFullAccessSandboxPolicy())
    if not confinement.writable:
        # Narrower than the thread's own policy, as in plan mode.
        policy = ReadOnlySandboxPolicy(network_access=confinement.network)
        return replace(order, sandbox_policy=policy)
    if confinement.proxy is not None:
        # The proxy is of this machine: on another one there is no network then.
        narrowed = order.sandbox_policy.model_copy(update={"network_access": False})
        return replace(order, sandbox_policy=narrowed)
    return order
