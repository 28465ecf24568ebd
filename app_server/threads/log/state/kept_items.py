"""The items of one turn that are in memory: the newest ones. No I/O."""

from collections import deque
from collections.abc import Iterator

from protocol.log.rollout import ItemCompleted, parse_record
from protocol.turns.items import KnownThreadItem, ThreadItem


class KeptItems:
    """Items in their order, as objects, or as their lines until somebody looks at them."""

    __slots__ = ("_entries", "left_out", "size")

    def __init__(self) -> None:
        self._entries: deque[tuple[ThreadItem | bytes, int]] = deque()
        self.left_out = 0
        """Items before these, which left memory."""
        self.size = 0
        """Bytes of their lines."""

    def add(self, item: ThreadItem | bytes, size: int) -> None:
        """Append an item, or the `itemCompleted` line that holds it."""
        self._entries.append((item, size))
        self.size += size

    def replace(self, item: KnownThreadItem, size: int) -> int:
        """Put an item in the place of the one with its id; gives by how much the size grew.

        Does nothing if that left memory, or is there as a line.
        """
        for index, (kept, before) in enumerate(self._entries):
            if getattr(kept, "id", None) == item.id:
                self._entries[index] = item, size
                self.size += size - before
                return size - before
        return 0

    def drop_oldest(self) -> int:
        """Let the first item go and return its size."""
        _, size = self._entries.popleft()
        self.left_out += 1
        self.size -= size
        return size

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ThreadItem]:
        if any(isinstance(item, bytes) for item, _ in self._entries):
            self._read_lines()
        return iter([item for item, _ in self._entries if not isinstance(item, bytes)])

    def _read_lines(self) -> None:
        read: deque[tuple[ThreadItem | bytes, int]] = deque()
        for item, size in self._entries:
            if not isinstance(item, bytes):
                read.append((item, size))
            elif isinstance(record := parse_record(item), ItemCompleted):
                read.append((record.item, size))
            else:
                # A damaged line is no item for anybody who reads the log as a whole, either.
                self.size -= size
        self._entries = read

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KeptItems) and other.left_out != self.left_out:
            return False
        return isinstance(other, KeptItems | list) and list(self) == list(other)

    def __repr__(self) -> str:
        return f"KeptItems({list(self)!r}, left_out={self.left_out})"
