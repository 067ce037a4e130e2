"""A loaded topic is a log with parts: what producers send is stored in order, and readers get what may be read."""
