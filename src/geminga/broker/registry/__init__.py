"""Which topics there are: made, loaded, closed and deleted one at a time each; partitioned ones, lists, watches."""
