"""Tests of app_server/extension."""
