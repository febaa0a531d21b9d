"""Exit with 0 if a URL answers with a status below 400, else with 1."""

import sys
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=2):
        pass
except OSError as error:
    sys.exit(str(error))
