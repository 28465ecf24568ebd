"""Tests of app_server/threads/files/history."""
