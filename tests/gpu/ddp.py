"""PyTorch at the work of parallel.py on the same GPUs: what NCCL reaches with a bucket, and DistributedDataParallel at the published models.

Usage: ddp.py bandwidth MIB,... or ddp.py cells CELL,... on as many GPUs as there are. A process for each GPU, as PyTorch has it; each on data that is there already.
What fails or takes longer than LIMIT seconds is said and left out. MODE=compile in the environment takes another of peer_models.py's modes than `fast`.
"""

import multiprocessing
import os
import socket
import sys
import time

MODE = os.environ.get("MODE", "fast")


def begin(rank, world, port):
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    return torch, dist


def timed(torch, dist, step, warm, window_s):
    """Seconds of one call; all ranks make the same number of them."""
    for _ in range(warm):
        step()
    torch.cuda.synchronize()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    each = torch.tensor([(time.perf_counter() - start) / 5], device="cuda")
    dist.all_reduce(each, op=dist.ReduceOp.MAX)
    count = max(5, int(window_s / each.item()))
    dist.barrier()
    start = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def reduce_worker(rank, world, port, sizes, at):
    torch, dist = begin(rank, world, port)
    for place, mebibytes in enumerate(sizes):
        at.value = place
        bucket = torch.ones(int(mebibytes * 2**18), device="cuda")
        took = timed(torch, dist, lambda: dist.all_reduce(bucket), 10, 0.5)
        if rank == 0:
            bus = 2 * (world - 1) / world * bucket.numel() * 4 / took / 1e9
            print(f"PyTorch, {world} GPUs, all_reduce of {mebibytes} MiB: {took * 1e3:.3f} ms, bus bandwidth {bus:.0f} GB/s", flush=True)
        del bucket
    dist.destroy_process_group()


def ddp_worker(rank, world, port, cells, at):
    torch, dist = begin(rank, world, port)
    import peer_models

    around = lambda model: torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
    for place, text in enumerate(cells):
        at.value = place
        cell = peer_models.Cell(":".join([*text.split(":")[:3], MODE]))
        work = peer_models.Work(cell, f"cuda:{rank}", around=around)
        took = timed(torch, dist, work.step, 10, 1.5)
        if rank == 0:
            print(f"PyTorch DDP | {cell} | {world} GPUs | {took * 1e3:.2f} ms | {cell.batch * world / took:.0f} samples/s", flush=True)
        work.close()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def at_once(worker, world, given, limit, left):
    """Lets a process for each rank go through these. Which was begun last, and why they went no further; None if they did all."""
    context = multiprocessing.get_context("spawn")
    at, port = context.Value("i", -1), free_port()
    ranks = [context.Process(target=worker, args=(rank, world, port, given, at), daemon=True) for rank in range(world)]
    for process in ranks:
        process.start()
    seen, since = -1, time.monotonic()
    why = None
    while why is None and any(process.is_alive() for process in ranks):
        time.sleep(0.05)
        if at.value != seen:
            seen, since = at.value, time.monotonic()
        if time.monotonic() - since > limit:
            why = f"takes longer than {limit:.0f} s"
        elif left() <= 0:
            why = "no time is left"
        elif any(process.exitcode for process in ranks):
            why = "failed"
    failed = [rank for rank, process in enumerate(ranks) if process.exitcode]
    why = why or ("failed" if failed else None)
    for process in ranks:
        process.kill()
        process.join()
    return at.value, f"{why}, rank {failed[0]} with exit code {ranks[failed[0]].exitcode}" if failed else why


def through(worker, world, given, left=lambda: float("inf")):
    """As `at_once`, and behind what fails once more from the next on. What was not done, and why: what one rank does not do the others wait for without end."""
    limit, undone = float(os.environ.get("LIMIT", "400")), []
    while given:
        place, why = at_once(worker, world, given, limit, left)
        if why is None:
            break
        first, last = max(place, 0), place < 0 or left() <= 0
        behind = len(given) - first - 1 if last else 0
        undone.append(f"PyTorch, {given[first]}{f' and {behind} behind it' if behind else ''} on {world} GPUs: {why}")
        print(undone[-1], flush=True)
        given = given[first + behind + 1 :]
    return undone


def bandwidth(sizes, counts, left=lambda: float("inf")):
    return [why for world in sorted(counts, reverse=True) if world > 1 for why in through(reduce_worker, world, [float(size) for size in sizes], left)]


def cells(given, counts, left=lambda: float("inf")):
    # Of most GPUs first, as in `plan.schedule`.
    return [why for world in sorted(counts, reverse=True) for why in through(ddp_worker, world, given, left)]


if __name__ == "__main__":
    import torch

    every = [count for count in (1, 2, 4) if count <= torch.cuda.device_count()]
    sys.exit(1 if {"bandwidth": bandwidth, "cells": cells}[sys.argv[1]](sys.argv[2].split(","), every) else 0)
