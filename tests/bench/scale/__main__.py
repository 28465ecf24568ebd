"""Figures of threads in PostgreSQL, beside files on the same disk where files can do the same.

python -m tests.bench.scale [appends load long lists clients starts] [--threads N]

A PostgreSQL of its own runs meanwhile, with `fsync` on. Rounds of both stores alternate, so that
whatever else the machine does disturbs both. These are figures to look at, not tests: nothing
passes or fails.
"""

import argparse
import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping

from tests.bench.scale import appends, clients, lists, long_threads, starts
from tests.bench.scale.options import Options
from tests.support.postgresql import prepare, running_cluster

FIGURES: Mapping[str, Callable[[Options], Coroutine[None, None, None]]] = {
    "appends": appends.measure_appends,
    "load": appends.measure_load,
    "long": long_threads.measure_long,
    "lists": lists.measure_lists,
    "clients": clients.measure_clients,
    "starts": starts.measure_starts,
}


def main() -> None:
    """Print the figures that are asked for, all by default."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)}")
    parser.add_argument("--threads", type=int, default=100_000, help="in lists (default: 100000)")
    parser.add_argument("--records", type=int, default=100_000, help="in long (default: 100000)")
    chosen = parser.parse_args()
    if unknown := set(chosen.figures) - set(FIGURES):
        parser.error(f"no such figure: {', '.join(sorted(unknown))}")
    settings = ("shared_buffers=256MB", "max_wal_size=2GB")
    with running_cluster(*settings, fsync=True) as cluster:
        prepare(cluster)
        for name in chosen.figures or FIGURES:
            measure = FIGURES[name]
            print(f"\n{inspect.getdoc(measure)}", flush=True)
            with cluster.database() as url:
                asyncio.run(measure(Options(cluster, url, chosen.threads, chosen.records)))


if __name__ == "__main__":
    main()
