"""The console: pages about a cluster for a browser, made on the server."""
