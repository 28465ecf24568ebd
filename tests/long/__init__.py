"""Commands that run for minutes: crashes, races, soaks, servers and clients of others."""
