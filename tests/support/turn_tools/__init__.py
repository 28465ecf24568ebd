"""Turns whose model runs commands, changes files or asks for permissions."""
