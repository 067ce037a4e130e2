"""Pages for people at ``/console/`` of the HTTP port (DESIGN.md); loaded with the first request for one."""
