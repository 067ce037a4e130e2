"""One client connection: frames in, frames out, back-pressure both ways, and the bounds over all connections."""
