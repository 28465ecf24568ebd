"""Tests of app_server/handlers/views."""
