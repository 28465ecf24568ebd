"""Tests of app_server/runtime/files."""
