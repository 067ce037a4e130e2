"""What lake files hold and how they are called: pure, without ``pyarrow``."""
