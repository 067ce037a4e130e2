// Live refresh, plots and help for the keyboard; every page works without.
