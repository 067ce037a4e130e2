"""The process of ``geminga proxy``: its command, its ports, what it answers over HTTP itself."""
