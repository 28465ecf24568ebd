"""environment/*, thread/environment/*: machines that threads run their tools on."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import OpenEnum, UInt64, WireModel, absent_if_none
from protocol.values import PathUri


class EnvironmentSkillsParams(WireModel):
    """Skills that an environment has to offer."""

    required: list[str] | None = None
    """Exact catalog names; checked before a model is called."""


class EnvironmentAddParams(WireModel):
    """Make another machine known, by its exec server."""

    environment_id: str
    """Names the environment from now on."""
    exec_server_url: str
    auth_bearer_token: str | None = None
    """Sent at every connect; only for a secure or a loopback address."""
    websocket_request_id: str | None = None
    """Sent as `X-Request-ID` at every connect; same rule as `authBearerToken`."""
    connect_timeout_ms: UInt64 | None = None
    """Null means the server's default."""
    skills: EnvironmentSkillsParams | None = None


class EnvironmentAddResponse(WireModel):
    """Nothing."""


class EnvironmentInfoParams(WireModel):
    """Ask an environment about itself."""

    environment_id: str


class EnvironmentShellInfo(WireModel):
    """The shell of an environment."""

    name: str
    """Such as `zsh`, `bash`, `powershell`, `sh` or `cmd`."""
    path: str
    """Path in the environment's own style, or a command name."""


class EnvironmentInfoResponse(WireModel):
    """What an environment says about itself."""

    shell: EnvironmentShellInfo
    cwd: PathUri | None = None
    """Default working directory, as a file URI; null if it named none."""


class EnvironmentStatusParams(WireModel):
    """Look at how an environment is, without connecting to it."""

    environment_id: str


EnvironmentStatusKind = TypeAliasType(
    "EnvironmentStatusKind", OpenEnum[Literal["ready", "pending", "disconnected", "unknown"]]
)
"""Whether an environment answers, is not connected yet, failed, or is not configured."""


class EnvironmentStatusResponse(WireModel):
    """How an environment is at the moment."""

    status: EnvironmentStatusKind
    error: str | None = absent_if_none()
    """Why it is `disconnected` or `unknown`; absent otherwise."""


class EnvironmentConnectionNotification(WireModel):
    """A thread's environment came or went; the method says which."""

    thread_id: str
    environment_id: str
