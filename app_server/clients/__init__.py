"""Programs that are clients of an app-server, and the connection that they use."""
