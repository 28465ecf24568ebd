"""`.codex/config.toml` of projects: settings that count if the user trusts the project.

Source: docs/config.md, "Settings of projects".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from app_server.config.config_toml import read_config
from app_server.config.key_check import ignored_text, refuse_unknown_keys, unknown_in_file
from app_server.config.values import Config, ConfigError, Document
from app_server.permissions.trust import project_trust
from app_server.runtime.files.repository import folders_of_project

FOLDER = ".codex"
FILE = "config.toml"

NOT_OF_PROJECTS = frozenset(
    {
        "apps_service",
        "budget",
        "chatgpt_base_url",
        "cli_auth_credentials_store",
        "forced_chatgpt_workspace_id",
        "forced_login_method",
        "hooks",
        "mcp_oauth_credentials_store",
        "memory",
        "model_prices",
        "model_provider",
        "model_providers",
        "notification_hosts",
        "notification_link",
        "notifications",
        "notify",
        "openai_base_url",
        "otel",
        "profile",
        "profiles",
        "projects",
        "sandbox_hidden_paths",
        "shell_environment_policy",
        "signals",
        "store",
    }
)
"""Keys that say where a user's words and credentials go, whom the user trusts, what is hidden."""

READ_ELSEWHERE = frozenset({"hooks"})
"""No settings: each hook runs only if the user trusts it as it is (docs/hooks.md)."""


@dataclass(frozen=True, slots=True)
class ProjectLayer:
    """The settings of one folder of a project."""

    folder: Path
    """The `.codex` folder."""
    config: Config = field(repr=False)
    """Its file, without the keys that a project may not set."""
    ignored: Sequence[str] = ()
    """Keys that a project may not set."""
    disabled_reason: str | None = None
    """Why it does not count; None if it does."""
    unknown: str | None = None
    """Says which keys nothing reads; None if there are none."""

    @property
    def document(self) -> Document:
        """Return its settings."""
        return self.config.document

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the user about its keys."""
        if self.disabled_reason is not None:
            return ()
        not_of_projects = (
            f"Ignored unsupported project-local config keys in {self.folder / FILE}: "
            f"{', '.join(self.ignored)}. If you want these settings to apply, set them in your "
            "own config.toml."
        )
        texts = (not_of_projects if self.ignored else None, self.unknown)
        return [text for text in texts if text is not None]


def with_projects(config: Config, layers: Sequence[ProjectLayer]) -> Config:
    """Insert enabled layers above the user's file; the last one wins."""
    counting = [layer.config for layer in layers if layer.disabled_reason is None]
    return config.with_projects(counting)


def read_project_layers(config: Config, folder: str) -> list[ProjectLayer]:
    """Read the settings from the root of a project down to a folder in it. This blocks.

    `config` says whether the user trusts the project.

    Raises:
        ConfigError: a file of a trusted project cannot be read, is no TOML, or has an unknown key
            where that is an error.
    """
    found = list(filter(_is_file, project_files(Path(folder))))
    if not found:
        return []
    trust = project_trust(config, folder)
    reason = None if trust == "trusted" else _reason(found[0], trust, config)
    layers = (_read(file, reason, is_strict=config.is_strict) for file in found)
    return [layer for layer in layers if layer is not None]


def project_files(folder: Path) -> list[Path]:
    """Return the files that the project of a folder has or may get, from its root down. Blocks."""
    return [ancestor / FOLDER / FILE for ancestor in reversed(folders_of_project(folder))]


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:
        # What may not be looked at says nothing.
        return False


def _read(file: Path, disabled_reason: str | None, *, is_strict: bool) -> ProjectLayer | None:
    try:
        config = read_config(file)
    except ConfigError:
        if disabled_reason is None:
            raise
        return None
    document = config.document
    if is_strict and disabled_reason is None:
        refuse_unknown_keys(config)
    unknown = unknown_in_file(config)
    ignored = sorted((NOT_OF_PROJECTS - READ_ELSEWHERE) & document.keys())
    kept = {key: value for key, value in document.items() if key not in NOT_OF_PROJECTS}
    text = ignored_text(unknown) if unknown else None
    return ProjectLayer(file.parent, replace(config, document=kept), ignored, disabled_reason, text)


def _reason(file: Path, trust: str | None, config: Config) -> str:
    project = file.parent.parent
    if trust == "untrusted":
        return f"{project} is marked as untrusted: its settings, hooks and rules are not read."
    where = config.source or "config.toml"
    return (
        "To load project-local config, hooks, and exec policies, add "
        f"{project} as a trusted project in {where}."
    )
