"""The model that answers at once, beside a benchmark (app_server/clients/bench/model.py)."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def bench_model() -> Iterator[dict[str, Any]]:
    """Run it as a process of its own; gives the configuration that leads to it."""
    model = subprocess.Popen(
        [sys.executable, "-m", "app_server.clients.bench.model"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert model.stdout is not None
        yield {
            "model": "bench",
            "model_provider": "bench",
            "model_providers.bench": {
                "name": "bench",
                "base_url": f"http://127.0.0.1:{model.stdout.readline().strip()}/v1",
                "wire_api": "responses",
            },
        }
    finally:
        model.kill()
        model.wait()
