"""`python -m cartograd`: the command line, for where the script `cartograd` is not on the path."""

from cartograd.cli import main

if __name__ == "__main__":
    main()
