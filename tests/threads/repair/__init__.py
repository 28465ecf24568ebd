"""Tests of app_server/threads/repair."""
