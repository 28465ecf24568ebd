"""Tests of app_server/http."""
