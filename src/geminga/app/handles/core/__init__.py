"""Rules of the handles, without a world."""
