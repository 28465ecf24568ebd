"""Tests of app_server/threads/postgresql."""
