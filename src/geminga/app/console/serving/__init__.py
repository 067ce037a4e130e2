"""What serves pages and acts: the application, visitors, templates, and the way to the administration."""
