"""What the suite is made of itself: rules, ledgers, samples, planted defects."""
