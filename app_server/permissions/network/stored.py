"""A network policy as the log of a thread has it.

Source: docs/wire.md, "Rollout lines".
"""

from app_server.permissions.network.policy import NetworkPolicy
from protocol.rollout import StoredNetwork


def stored(policy: NetworkPolicy) -> StoredNetwork:
    """Return what is written of a policy."""
    return StoredNetwork(
        allowed=list(policy.allowed),
        denied=list(policy.denied),
        limited=policy.is_limited,
        local=policy.reaches_local,
        socks=policy.has_socks,
    )


def policy_of(network: StoredNetwork) -> NetworkPolicy:
    """Return the policy that was written."""
    return NetworkPolicy(
        allowed=tuple(network.allowed),
        denied=tuple(network.denied),
        is_limited=network.limited,
        reaches_local=network.local,
        has_socks=network.socks,
    )
