"""Tests of app_server/handlers/integrations."""
