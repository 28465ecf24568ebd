"""Tests of app_server/handlers/apps."""
