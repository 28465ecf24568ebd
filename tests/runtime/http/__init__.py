"""Tests of app_server/runtime/http."""
