"""Compares the energy that ledger recorded of an attempt with the counter as counter.py read it over the same time.

Usage: compare.py SHOW.json COUNTER    SHOW.json: what `ledger show ID --json` printed; its newest attempt is taken.
"""

import bisect
import json
import sys

attempt = json.load(open(sys.argv[1]))["attempts"][0]
times, counter, power = zip(*(map(float, line.split()) for line in open(sys.argv[2])))


def at(ms):
    i = min(max(bisect.bisect(times, ms), 1), len(times) - 1)
    share = (ms - times[i - 1]) / (times[i] - times[i - 1])
    return (counter[i - 1] + share * (counter[i] - counter[i - 1])) / 1000


start = attempt["started_unix_ms"]
stop = start + attempt["wall_ns"] / 1e6
theirs = at(stop) - at(start)
ours = attempt["metrics"]["energy_total"]
inside = [watts for ms, watts in zip(times, power) if start <= ms <= stop]
print(f"ledger   {ours['value']:.1f} J, uncertainty {ours.get('uncertainty')} J")
print(f"counter  {theirs:.1f} J over {(stop - start) / 1e3:.2f} s, read by pynvml")
print(f"apart    {100 * (ours['value'] / theirs - 1):+.3f} %")
print(f"mean of the instantaneous power, by pynvml: {sum(inside) / len(inside):.1f} W; counter / time: {theirs / (stop - start) * 1e3:.1f} W")
