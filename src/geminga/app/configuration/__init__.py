"""Where settings come from: files, environment and command line, read into the values that servers take."""
