"""Where a topic is served, and under which addresses clients reach it."""
