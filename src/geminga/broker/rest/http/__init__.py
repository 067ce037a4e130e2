"""HTTP itself: the server, its connections and deadlines, and which pages may call."""
