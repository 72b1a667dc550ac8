"""`python -m royale_client` is `royale-env-client`."""

import sys

from royale_client.cli import main

if __name__ == "__main__":
    sys.exit(main())
