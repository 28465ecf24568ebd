"""Tests of app_server/threads/codex."""
