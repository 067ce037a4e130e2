"""What every process of Geminga has: life and signals, descriptors, event loop, metrics, plain answers by HTTP."""
