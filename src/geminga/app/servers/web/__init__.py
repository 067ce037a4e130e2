"""What HTTP needs beside administration, by whom it is asked for: pages of other origins, WebSockets, messages."""
