"""Tests of app_server/threads/index."""
