"""Tests of app_server/threads/history."""
