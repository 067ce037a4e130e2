"""What can be asked of a broker over HTTP, as rows: clients and commands are made from them."""
