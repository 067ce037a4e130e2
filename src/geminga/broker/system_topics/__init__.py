"""Topics that the broker keeps for itself: tables in topics, and the policies of topics that are kept so."""
