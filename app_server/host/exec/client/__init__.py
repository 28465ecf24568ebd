"""Client side of exec servers: environments, their connections, and remote processes."""
