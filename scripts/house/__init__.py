"""The figures of the house, one module for each kind; `scripts/check_house.py` prints and enforces them."""
