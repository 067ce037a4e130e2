"""Load of brokers and bundles: what they report, and who gets what."""
