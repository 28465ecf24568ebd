"""initialize, server/diagnostics, environment/*: about the server itself."""
