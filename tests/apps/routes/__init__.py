"""Tests of app_server/apps/routes."""
