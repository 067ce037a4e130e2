"""What source and sink share of options and columns. Pure but for the columns' types."""
