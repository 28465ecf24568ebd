"""`.codex/config.toml` of projects: settings that count if the user trusts the project.

Source: docs/config.md, "Settings of projects".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app_server.config.values import Config, ConfigError, Document, read_config
from app_server.permissions.trust import project_trust
from app_server.runtime.repository import folders_of_project

FOLDER = ".codex"
FILE = "config.toml"

NOT_OF_PROJECTS = frozenset(
    {
        "apps_service",
        "chatgpt_base_url",
        "cli_auth_credentials_store",
        "forced_chatgpt_workspace_id",
        "forced_login_method",
        "hooks",
        "mcp_oauth_credentials_store",
        "memory",
        "model_provider",
        "model_providers",
        "notify",
        "openai_base_url",
        "otel",
        "profile",
        "profiles",
        "projects",
        "sandbox_hidden_paths",
        "shell_environment_policy",
        "signals",
    }
)
"""Keys that say where a user's words and credentials go, whom the user trusts, what is hidden."""


@dataclass(frozen=True, slots=True)
class ProjectLayer:
    """The settings of one folder of a project."""

    folder: Path
    """The `.codex` folder."""
    document: Document = field(repr=False)
    ignored: Sequence[str] = ()
    """Keys that a project may not set."""
    disabled_reason: str | None = None
    """Why it does not count; None if it does."""

    @property
    def warning(self) -> str | None:
        """What the user should know of it."""
        if not self.ignored or self.disabled_reason is not None:
            return None
        return (
            f"Ignored unsupported project-local config keys in {self.folder / FILE}: "
            f"{', '.join(self.ignored)}. If you want these settings to apply, set them in your "
            "own config.toml."
        )


def with_projects(config: Config, layers: Sequence[ProjectLayer]) -> Config:
    """Put those that count between the user's file and what overrides it; the last one wins."""
    counting = [layer.document for layer in layers if layer.disabled_reason is None]
    return config.with_projects(counting)


def read_project_layers(config: Config, folder: str) -> list[ProjectLayer]:
    """Read the settings from the root of a project down to a folder in it. This blocks.

    `config` says whether the user trusts the project.

    Raises:
        ConfigError: a file of a trusted project cannot be read, or is no TOML.
    """
    found = list(_files(Path(folder)))
    if not found:
        return []
    trust = project_trust(config, folder)
    reason = None if trust == "trusted" else _reason(found[0], trust, config)
    return [layer for file in found if (layer := _read(file, reason)) is not None]


def _files(folder: Path) -> Iterator[Path]:
    for ancestor in reversed(folders_of_project(folder)):
        file = ancestor / FOLDER / FILE
        try:
            if file.is_file():
                yield file
        except OSError:
            # What may not be looked at says nothing.
            continue


def _read(file: Path, disabled_reason: str | None) -> ProjectLayer | None:
    try:
        document = read_config(file).document
    except ConfigError:
        if disabled_reason is None:
            raise
        return None
    ignored = sorted(NOT_OF_PROJECTS & document.keys())
    kept = {key: value for key, value in document.items() if key not in NOT_OF_PROJECTS}
    return ProjectLayer(file.parent, kept, ignored, disabled_reason)


def _reason(file: Path, trust: str | None, config: Config) -> str:
    project = file.parent.parent
    if trust == "untrusted":
        return f"{project} is marked as untrusted: its settings, hooks and rules are not read."
    where = config.source or "config.toml"
    return (
        "To load project-local config, hooks, and exec policies, add "
        f"{project} as a trusted project in {where}."
    )
