"""The commands of a thread: each an item, some of which go on behind the turns."""
