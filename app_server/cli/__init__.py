"""The command line of `app-server`, one module a command."""
