"""``make walk``: what a request runs through in the product, counted: calls, files, rooms and changes between rooms."""
