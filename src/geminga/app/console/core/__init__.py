"""What the console's pages show, made of what the administration answered. Pure."""
