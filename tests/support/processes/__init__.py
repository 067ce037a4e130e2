"""Real processes and sockets: bookies, Apache's broker, hung and hostile peers, proxies."""
