"""What a client chooses for its thread, and the settings in force for it."""
