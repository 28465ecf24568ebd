"""Tests of app_server/host/sandbox."""
