"""Notifications: settings, outbox, webhooks, programs."""
