"""mcp: what is kept of what the processes of a server wrote to stderr."""

import pytest

from app_server.mcp.processes import MAX_OUTPUT_BYTES, ServerOutput

LINES = [f"{number:07}" for number in range(3 * MAX_OUTPUT_BYTES // 8)]
WRITTEN = "".join(f"{line}\n" for line in LINES).encode()


@pytest.mark.parametrize("size", [1000, 50_000, MAX_OUTPUT_BYTES, len(WRITTEN)])
def test_the_newest_lines_stay_in_whatever_pieces_they_came(size: int) -> None:
    output = ServerOutput()
    for start in range(0, len(WRITTEN), size):
        output.add(WRITTEN[start : start + size])
    kept = output.text().splitlines()
    # The oldest line of them may be the rest of one.
    assert kept == LINES[-(MAX_OUTPUT_BYTES // 8 - 1) :]
