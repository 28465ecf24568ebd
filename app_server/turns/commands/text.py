"""Text of a command's result for the model. No I/O.

Source: docs/tools.md, "Commands".
"""

from collections.abc import Sequence
from secrets import token_hex

from app_server.host.commands.output import KeptOutput

BYTES_PER_TOKEN = 4


def tokens_in(size_bytes: int) -> int:
    """Estimate the tokens of this many bytes."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def state_line(exit_code: int | None, session_id: str) -> str:
    """Say whether a command has ended."""
    if exit_code is None:
        return f"Process running with session ID {session_id}"
    return f"Process exited with code {exit_code}"


def model_text(
    output: KeptOutput, limit_bytes: int, wall_s: float, state: str, notes: Sequence[str] = ()
) -> str:
    """Render a command for the model: how long it waited, how the command is, what it printed."""
    lines = [
        f"Chunk ID: {token_hex(3)}",
        f"Wall time: {wall_s:.4f} seconds",
        state,
        *notes,
        f"Original token count: {tokens_in(output.total)}",
        "Output:",
    ]
    return "\n".join(lines) + "\n" + cut_to(output, limit_bytes)


def cut_to(output: KeptOutput, limit_bytes: int) -> str:
    """Return output as text, cut in the middle; a line says how much is missing."""
    return output.text(limit_bytes, lambda count: f"{tokens_in(count)} tokens")
