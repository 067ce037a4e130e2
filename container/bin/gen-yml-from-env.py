#!/usr/bin/env python3
"""See geminga.app.container.programs."""

import sys

from geminga.app.container.programs import main

main(["gen-yml-from-env.py", *sys.argv[1:]])
