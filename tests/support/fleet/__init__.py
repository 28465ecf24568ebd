"""Several servers with one database, the load on them, faults from outside, and who checks it."""
