"""What the scripts for several GPUs decide without one: which cards a run gets and when, how far apart two curves are, and which attempts make a row of a table."""

import math
import os

# Phase and step of a rank at which it panics, hangs or dies, with shared gradients and in stages. Those that no table has yet come first: what is
# not reached when time is up has been seen before.
FAULTS = {
    "pipeline": ["1 panic eval 1", "0 hang inference 3", "1 hang summary 1", "2 hang backward 40", "1 hang forward 40", "0 abort backward 40", "1 panic optimizer 40"],
    "memory": [""],
    "data": [
        *["2 hang forward 40", "3 panic all_reduce 40", "2 hang backward 40", "0 panic eval 1", "0 hang inference 3", "1 hang forward 40", "0 hang backward 40"],
        *["1 hang all_reduce 40", "1 panic data 40", "0 panic optimizer 40", "1 abort forward 40", "1 panic warm_up 1", "1 panic idle 1", "1 hang summary 1"],
    ],
}


def faults(ranks):
    """Those of so many ranks."""
    return {how: [place for place in places if not place or int(place.split()[0]) < ranks] for how, places in FAULTS.items()}


def visible(variable, indices):
    """The cards that a machine lends: those that CUDA_VISIBLE_DEVICES names, in its order, or all where it is not set."""
    if variable is None:
        return list(indices)
    cards = []
    for card in map(str.strip, variable.split(",")):
        # CUDA ends its list at what names no card, too.
        if not card or card.startswith("-"):
            break
        cards.append(card)
    return cards


def cards_of(cards, gpus, lane):
    """Those of one of the runs side by side that have so many GPUs each."""
    return cards[lane * gpus : (lane + 1) * gpus]


def processors_of(processors, every, gpus, lane):
    """As many of them for each GPU as there are for every one; all where they are fewer than GPUs."""
    begin, end = (len(processors) * card // every for card in (lane * gpus, (lane + 1) * gpus))
    return processors[begin:end] or processors


def schedule(counts, cells):
    """Numbers of GPUs, each with a cell, in the order in which they are run. Of most GPUs first: what is lost when time is up is then the cheapest to do again."""
    return [(gpus, cell) for gpus in sorted(set(counts), reverse=True) for cell in cells]


def apart(reference, found):
    """The greatest difference between two curves, of the first value of the reference: – where there is nothing to compare with, nan where a value is no number."""
    if not reference or not found:
        return "–"
    if not all(map(math.isfinite, [*reference, *found])) or reference[0] == 0:
        far = math.nan
    else:
        far = max(abs(a - b) for a, b in zip(reference, found)) / abs(reference[0])
    return f"{far:.2e}" + ("" if len(reference) == len(found) else f" OF {min(len(reference), len(found))} ALONE: THERE ARE {len(found)} AND NOT {len(reference)}")


def why_no_row(attempt, speed):
    """Why an attempt is not to be taken for a measurement; None where it is."""
    if not attempt:
        return "there is no attempt"
    if attempt.get("outcome") != "finished":
        return f"it is {attempt.get('outcome')}: {attempt.get('reason')}"
    return None if speed else "it has no throughput"


def once_more(first, again):
    """Whether a second attempt ended with the weights of the first."""
    if not again or again["id"] == first["id"] or again.get("outcome") != "finished":
        return "NOT EXECUTED"
    told = [attempt.get("digests", {}).get("weights") for attempt in (first, again)]
    return "weights UNKNOWN" if None in told else "weights the same" if told[0] == told[1] else "weights OTHER"


def without_nccl(search, folder):
    """An LD_LIBRARY_PATH by which nobody finds NCCL: files of its names that are no libraries come first, at which the loader gives up, and a folder that holds it has
    all else that it holds by links."""
    folders = [folder / "instead"]
    folders[0].mkdir(parents=True, exist_ok=True)
    for name in ("libnccl.so.2", "libnccl.so"):
        (folders[0] / name).write_text("no library\n" * 100)
    for number, place in enumerate(place for place in (search or "").split(":") if place and os.path.isdir(place)):
        names = os.listdir(place)
        if any(name.startswith("libnccl.so") for name in names):
            links = folder / str(number)
            links.mkdir(exist_ok=True)
            for name in names:
                if not name.startswith("libnccl.so") and not (links / name).is_symlink():
                    (links / name).symlink_to(os.path.abspath(os.path.join(place, name)))
            place = links
        folders.append(place)
    return ":".join(map(str, folders))
