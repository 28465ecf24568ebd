"""Tests of app_server/threads/log."""
