"""Tests of app_server/analytics."""
