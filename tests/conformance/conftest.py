"""Prints, at the end of a run, how many ops were compared with torch on how many of PyTorch's samples."""


def pytest_terminal_summary(terminalreporter):
    from harness import counts

    if counts:
        terminalreporter.write_line(f"OpInfo parity: {len(counts)} ops, {sum(counts.values())} samples compared")
