"""Tests of app_server/apps/files."""
