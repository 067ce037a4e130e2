"""What somebody who is not known yet can do to a broker that asks who is there."""
