"""Tests of app_server/permissions/sandbox."""
