"""Tests of app_server/host/commands."""
