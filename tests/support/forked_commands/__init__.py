"""Commands for servers under test, of which each runs in a fork of a process with all imports."""
