"""turn/*, and what begins turns: the queue, goals, compaction."""
