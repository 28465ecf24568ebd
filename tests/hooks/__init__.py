"""Tests of app_server/hooks."""
