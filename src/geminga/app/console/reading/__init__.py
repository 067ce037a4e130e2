"""What the console's pages ask the administration for, where that takes several questions."""
