"""The ledger of signals and the wakes of threads, in the database. Blocks."""
