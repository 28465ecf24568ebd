"""Tests of app_server/skills."""
