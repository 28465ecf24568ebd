"""How threads are kept in order: projects, sections, attachments."""
