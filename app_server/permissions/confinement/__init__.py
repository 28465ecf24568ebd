"""What a thread is confined to: from its settings to the value that sandboxes and tools go by."""
