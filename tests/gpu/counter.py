"""Reads a GPU's energy counter 20 times a second through pynvml, apart from ledger, until its standard input closes.

Usage: counter.py FILE    Lines: Unix time in milliseconds, the counter in millijoules, the instantaneous power in watts.
"""

import sys
import threading
import time

import pynvml

pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
with open(sys.argv[1], "w") as file:
    while not ended.wait(0.05):
        before = time.time()
        energy_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
        now_ms = 500 * (before + time.time())
        power = pynvml.nvmlDeviceGetFieldValues(gpu, [186])[0].value.uiVal / 1000
        print(f"{now_ms:.3f} {energy_mj} {power}", file=file, flush=True)
