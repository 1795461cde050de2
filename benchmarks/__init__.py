"""What Orchestrator costs beside the work itself, measured next to a plain asyncio + sqlite3 loop.

    python -m benchmarks                 everything (some minutes); `make bench` does the same
    python -m benchmarks --quick         everything, smaller and with fewer rounds
    python -m benchmarks chain fanout    only these

Each round measures the plain loop and Orchestrator one after the other, each in a fresh process, and a ratio is taken
within the round: other load on the machine meets both. What is printed is the median, with the smallest and the largest
round. Nothing here fails because it was slow.

The plain loop (`plain`) is the physical limit of "durable before the next step": one INSERT and one COMMIT for each
step, in WAL mode with `synchronous=FULL`. It has no claims, versions, manifests, events, checks or fencing.

Reading order: `__main__` (which benchmarks there are), `suites` (what each compares), `plain` and `ours` (what is
compared), `measure` and `report` (how it is counted and shown).
"""
