"""The garbage collector while much is made that stays.

Every few hundred new objects set off a collection, and every quarter more a full one, which looks
at everything that there is while nobody else runs. Of what is made at once, and is all kept, none
of them finds anything.
Source: https://docs.python.org/3/library/gc.html
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pausing = 0


@contextmanager
def collections_paused() -> Iterator[None]:
    """Let no collection begin while the context lasts; for work of well under a second.

    Any number of threads may be in it at once; the last one that leaves lets them begin again.
    """
    global _pausing
    with _lock:
        _pausing += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _pausing -= 1
            if not _pausing:
                gc.enable()
