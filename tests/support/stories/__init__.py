"""Stories that simulations and crash tests tell, and what judges them."""
