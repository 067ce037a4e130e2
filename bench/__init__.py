"""Claims about speed and size, each as a command that measures Geminga beside a bare floor in one run."""
