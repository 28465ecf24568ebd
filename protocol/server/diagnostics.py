"""server/diagnostics: how the server's process is doing, in figures."""

from typing import Literal

from protocol.model import Int64, UInt, UInt32, UInt64, WireModel, experimental


class ServerDiagnosticsParams(WireModel):
    """Ask how the server's process is doing."""


class ServerDiagnosticsGauge(WireModel):
    """One measured number."""

    name: str
    value: UInt64


class ServerDiagnosticsProcess(WireModel):
    """The server's own process."""

    id: UInt32
    """Process id of the operating system."""
    resident_memory_bytes: UInt64 | None = None
    """Null where it cannot be measured."""
    physical_footprint_bytes: UInt64 | None = None
    """Memory as macOS accounts for it; null where it cannot be measured."""


class ServerDiagnosticsServer(WireModel):
    """Which server this is, and since when it runs."""

    version: str
    """Of the program."""
    protocol_version: str
    """The Codex app-server version whose wire this is."""
    started_at_ms: Int64
    """Unix milliseconds."""
    uptime_ms: UInt64
    """Changes of the machine's clock do not count."""


class ServerDiagnosticsConnection(WireModel):
    """One client that is connected now."""

    id: UInt
    """Counted from 1 since the start."""
    client_name: str | None = None
    """Null before `initialize`; so is the version."""
    client_version: str | None = None
    requests_in_flight: UInt
    waiting_messages: UInt
    """That wait to be sent."""
    waiting_chars: UInt
    """Of these messages."""


class ServerDiagnosticsThreads(WireModel):
    """Loaded threads, and the turns that have ended since the start."""

    loaded: UInt
    running: UInt
    """With a turn that runs."""
    waiting_for_user: UInt
    """Of those that run: waiting for an approval or for another answer of the user."""
    turns_completed: UInt64
    turns_failed: UInt64
    turns_interrupted: UInt64


class ServerDiagnosticsQueue(WireModel):
    """Something that has a bound, and how full it is. Of some queues there are several."""

    name: str
    unit: str
    """What is counted: `requests`, `characters`, `messages`, `bytes`, …"""
    bound: UInt64 | None = None
    """Of one queue; null where the system has none."""
    fullest: UInt64
    """How much the fullest one holds."""
    total: UInt64
    """How much all hold together."""
    owners: UInt
    """How many there are."""


class ServerDiagnosticsMcpServers(WireModel):
    """How many MCP servers of loaded threads have one status."""

    status: str
    """As `mcpServerStatus/list` has it."""
    count: UInt
    names: list[str]
    """Their names, each once, sorted; at most 64."""


class ServerDiagnosticsBucket(WireModel):
    """The part of a histogram between the bucket before and a bound."""

    up_to_us: UInt64
    """Microseconds."""
    count: UInt64


class ServerDiagnosticsMethod(WireModel):
    """The answers to one method since the start.

    A time is that from when the request was read to when its answer was ready. Quantiles are at
    most 19 % too high.
    """

    method: str
    count: UInt64
    failed: UInt64
    """Answers that are errors."""
    p50_us: UInt64
    p99_us: UInt64
    max_us: UInt64
    buckets: list[ServerDiagnosticsBucket]
    """Without empty ones; at most 109."""


class ServerDiagnosticsSignals(WireModel):
    """How many signals of the ledger are at one stage."""

    stage: str
    count: UInt64


class ServerDiagnosticsFailure(WireModel):
    """Failures of one kind since the start; texts of errors are not kept."""

    source: Literal["request", "turn"]
    kind: str
    """`data.code` of a request's error, or the word of `codexErrorInfo` of a turn's."""
    count: UInt64
    last_at_ms: Int64
    """Unix milliseconds."""
    last_method: str | None = None
    """The method that failed last; null for turns, and for methods that do not exist."""


class ServerDiagnosticsResponse(WireModel):
    """How the server's process is doing: figures, and no text, path or id of a thread."""

    process: ServerDiagnosticsProcess
    gauges: list[ServerDiagnosticsGauge]
    server: ServerDiagnosticsServer | None = experimental(absent=True, extension=True)
    connections: list[ServerDiagnosticsConnection] | None = experimental(
        absent=True, extension=True
    )
    """The oldest first; at most 256."""
    threads: ServerDiagnosticsThreads | None = experimental(absent=True, extension=True)
    queues: list[ServerDiagnosticsQueue] | None = experimental(absent=True, extension=True)
    mcp_servers: list[ServerDiagnosticsMcpServers] | None = experimental(
        absent=True, extension=True
    )
    """By status."""
    methods: list[ServerDiagnosticsMethod] | None = experimental(absent=True, extension=True)
    """Those that were called, by name."""
    signals: list[ServerDiagnosticsSignals] | None = experimental(absent=True, extension=True)
    """By stage; empty where no signal was used since the start."""
    failures: list[ServerDiagnosticsFailure] | None = experimental(absent=True, extension=True)
    """The newest kind first; at most 64."""
    analytics: list[ServerDiagnosticsGauge] | None = experimental(absent=True, extension=True)
    """What was used since the start, by name, at most 513 counters; absent unless it is counted."""
