"""Tests of app_server/observability/analytics."""
