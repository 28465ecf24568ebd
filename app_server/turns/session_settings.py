"""What the configuration says of a thread's turns, for as long as it is loaded. No I/O."""

from dataclasses import dataclass, field

from app_server.permissions.confinement.places import Places
from app_server.permissions.environment import CommandSettings
from app_server.permissions.network.settings import NetworkTable
from app_server.turns.model.catalogue.thread_model import ModelSettings
from app_server.turns.model.web_search_settings import WebSearchSettings


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What does not change while a thread is loaded."""

    model: ModelSettings = field(default_factory=ModelSettings)
    compact_prompt: str | None = None
    """What the model is asked to sum up; None means our own words."""
    output_limit_bytes: int = 12_000
    requests_permissions: bool = False
    """Whether the model may ask for more than the sandbox allows."""
    web_search: WebSearchSettings = field(default_factory=WebSearchSettings)
    asks_in_every_mode: bool = False
    """Whether the model may ask the user something outside of plan mode too."""
    offers_plans: bool = True
    """Whether the model may show its plan with a tool."""
    offers_patches: bool = True
    """Whether the model has a tool for patches; those in shell commands are read all the same."""
    shows_patches_early: bool = False
    """Whether clients see a patch while the model writes it."""
    commands: CommandSettings = field(default_factory=CommandSettings)
    places: Places | None = None
    """What a confinement knows of this machine; None: what the whole server knows."""
    reads_server_skills: bool = False
    """Whether the model may read skills that MCP servers have."""
    installs_skill_servers: bool = True
    """Whether the user is offered MCP servers that skills need."""
    review_model: str | None = None
    """The model that reviews code; None: the thread's own."""
    network_proxy: NetworkTable | None = None
    """What holds for commands that have a network; None: they have it without a proxy."""
    approval_timeout_s: float | None = None
    """For the user to answer a question about an action; None means without limit."""
