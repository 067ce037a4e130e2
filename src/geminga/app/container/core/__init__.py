"""What the programs of the image decide by: pure."""
