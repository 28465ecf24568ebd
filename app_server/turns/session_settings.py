"""What the configuration says of a thread's turns, for as long as it is loaded. No I/O."""

from dataclasses import dataclass

from app_server.models.catalogue.thread_model import ModelSettings
from app_server.models.web_search_settings import WebSearchSettings
from app_server.permissions.confinement.places import Places
from app_server.permissions.environment import CommandSettings
from app_server.permissions.network.settings import NetworkTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """What does not change while a thread is loaded."""

    model: ModelSettings
    compact_prompt: str | None
    """What the model is asked to sum up; None means our own words."""
    output_limit_bytes: int
    requests_permissions: bool
    """Whether the model may ask for more than the sandbox allows."""
    web_search: WebSearchSettings
    asks_in_every_mode: bool
    """Whether the model may ask the user something outside of plan mode too."""
    offers_plans: bool
    """Whether the model may show its plan with a tool."""
    offers_patches: bool
    """Whether the model has a tool for patches; those in shell commands are read all the same."""
    shows_patches_early: bool
    """Whether clients see a patch while the model writes it."""
    commands: CommandSettings
    places: Places
    """What a confinement knows of this machine."""
    reads_server_skills: bool
    """Whether the model may read skills that MCP servers have."""
    installs_skill_servers: bool
    """Whether the user is offered MCP servers that skills need."""
    review_model: str | None
    """The model that reviews code; None: the thread's own."""
    network_proxy: NetworkTable | None
    """What holds for commands that have a network; None: they have it without a proxy."""
    approval_timeout_s: float | None
    """For the user to answer a question about an action; None means without limit."""
