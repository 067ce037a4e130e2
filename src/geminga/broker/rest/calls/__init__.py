"""What each call over HTTP is made of: request and answer, route, target, the broker that owns it."""
