"""Tests of app_server/handlers/settings."""
