"""Tests of app_server/views."""
