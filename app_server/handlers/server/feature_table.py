"""Feature flags of this server.

Source: docs/config.md, "Features".
"""

from collections.abc import Sequence
from typing import NamedTuple

from app_server.permissions.network import FEATURE
from protocol.server.models import ExperimentalFeatureStage


class Feature(NamedTuple):
    """One key of `[features]`."""

    names: Sequence[str]
    """The name, and older ones."""
    stage: ExperimentalFeatureStage
    default: bool
    display_name: str | None = None
    """For people, as the two texts below; only what is in beta has them."""
    description: str | None = None
    announcement: str | None = None


FEATURES = (
    Feature(["apply_patch_streaming_events"], "underDevelopment", default=False),
    Feature(["apps", "connectors"], "stable", default=True),
    Feature(["auth_elicitation"], "stable", default=True),
    Feature(["default_mode_request_user_input"], "underDevelopment", default=False),
    Feature(["mcp_tool_list_changed"], "underDevelopment", default=True),
    Feature(
        [FEATURE],
        "beta",
        default=False,
        display_name="Network proxy",
        description=(
            "Confined commands that have a network reach only the hosts that your settings allow."
        ),
        announcement="",
    ),
    Feature(["plugins"], "stable", default=True),
    Feature(["request_permissions_tool"], "underDevelopment", default=False),
    Feature(["skill_mcp_dependency_install"], "stable", default=True),
    Feature(["tool_suggest"], "stable", default=True),
)
"""Every key of `[features]` that something here reads (docs/config.md)."""
