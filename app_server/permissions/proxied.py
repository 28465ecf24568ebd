"""What `features.network_proxy` makes of a confinement. No I/O.

Source: docs/config.md, "Network of commands".
"""

from dataclasses import replace

from app_server.permissions.confinement import Confinement
from app_server.permissions.network.policy import NetworkPolicy
from app_server.permissions.network.settings import NetworkTable


def through_proxy(confinement: Confinement, feature: NetworkTable | None) -> Confinement:
    """Put the proxy in the place of the network, where there is one and the feature is on.

    Where a profile has the proxy anyway both hold: a host is denied if either denies it, and
    allowed if either allows it.
    """
    if feature is None or not confinement.is_confined:
        return confinement
    if confinement.network:
        return replace(confinement, network=False, proxy=feature.policy())
    if confinement.proxy is None:
        return confinement
    return replace(confinement, proxy=_both(confinement.proxy, feature.policy()))


def _both(profile: NetworkPolicy, feature: NetworkPolicy) -> NetworkPolicy:
    return NetworkPolicy(
        allowed=tuple(dict.fromkeys((*profile.allowed, *feature.allowed))),
        denied=tuple(dict.fromkeys((*profile.denied, *feature.denied))),
        is_limited=profile.is_limited or feature.is_limited,
        reaches_local=profile.reaches_local or feature.reaches_local,
        has_socks=profile.has_socks and feature.has_socks,
    )
