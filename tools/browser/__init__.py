"""The console in a real browser: the tasks that people come for, accessibility, times, and what it bears."""
