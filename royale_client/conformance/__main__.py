"""`python -m royale_client.conformance`."""

import sys

from royale_client.conformance.cli import main

if __name__ == "__main__":
    sys.exit(main())
