"""What `features.network_proxy` makes of a confinement. No I/O.

Source: docs/config.md, "Network of commands".
"""

from dataclasses import replace

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.network.policy import NetworkPolicy
from app_server.permissions.network.settings import NetworkTable


def through_proxy(confinement: Confinement, feature: NetworkTable | None) -> Confinement:
    """Put the proxy in the place of the network, where there is one and the feature is on.

    Where a profile has the proxy anyway both hold: a host is denied if either denies it, and
    allowed if either allows it, unless the feature is closed. What the feature says of local hosts
    counts before what the profile says.
    """
    if feature is None or not confinement.is_confined:
        return confinement
    if confinement.network:
        return replace(confinement, network=False, proxy=feature.policy())
    if confinement.proxy is None:
        return confinement
    profile, said = confinement.proxy, feature.policy()
    of_profile = () if feature.is_closed else profile.allowed
    is_local = feature.allow_local_binding
    both = NetworkPolicy(
        allowed=tuple(dict.fromkeys((*of_profile, *said.allowed))),
        denied=tuple(dict.fromkeys((*profile.denied, *said.denied))),
        is_limited=profile.is_limited or said.is_limited,
        reaches_local=profile.reaches_local if is_local is None else is_local,
        has_socks=profile.has_socks and said.has_socks,
        is_closed=said.is_closed,
    )
    return replace(confinement, proxy=both)
