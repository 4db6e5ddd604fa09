"""PyTorch at the work of parallel.py on the same GPUs: what NCCL reaches with a bucket, and DistributedDataParallel at the published models.

Usage: ddp.py bandwidth MIB,... or ddp.py cells CELL,... on as many GPUs as there are. A process for each GPU, as PyTorch has it; each on data that is there already.
"""

import contextlib
import os
import sys
import time


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


def reduce_worker(rank, world, port, sizes):
    torch, dist = begin(rank, world, port)
    for mebibytes in sizes:
        bucket = torch.ones(int(mebibytes * 2**18), device="cuda")
        took = timed(torch, dist, lambda: dist.all_reduce(bucket), 10, 0.5)
        if rank == 0:
            bus = 2 * (world - 1) / world * bucket.numel() * 4 / took / 1e9
            print(f"PyTorch, {world} GPUs, all_reduce of {mebibytes} MiB: {took * 1e3:.3f} ms, bus bandwidth {bus:.0f} GB/s", flush=True)
        del bucket
    dist.destroy_process_group()


def ddp_worker(rank, world, port, cells):
    torch, dist = begin(rank, world, port)
    import peers
    from torch import nn

    peers.DEVICE = torch.device("cuda", rank)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for cell in cells:
        name, batch, precision = cell.split(":")[:3]
        batch = int(batch)
        model, make, classes = peers.opened(name)
        model = nn.parallel.DistributedDataParallel(model.to(peers.DEVICE).train(), device_ids=[rank], find_unused_parameters=name == "bert")
        cast = (lambda: torch.autocast("cuda", torch.bfloat16)) if precision == "bf16" else contextlib.nullcontext
        images = name in ("resnet50", "vgg16")
        rule = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9) if images else torch.optim.AdamW(model.parameters(), 1e-4)
        x = make(batch)
        y = torch.randint(0, classes, (batch if images else x.numel(),), device=peers.DEVICE)

        def step():
            rule.zero_grad(set_to_none=True)
            with cast():
                loss = nn.functional.cross_entropy(model(x).reshape(-1, classes), y)
            loss.backward()
            rule.step()

        took = timed(torch, dist, step, 10, 1.5)
        if rank == 0:
            print(f"PyTorch DDP | {cell} | {world} GPUs | {took * 1e3:.2f} ms | {batch * world / took:.0f} samples/s", flush=True)
        del model, rule, x, y, step
        torch.cuda.empty_cache()
    dist.destroy_process_group()


def spawn(worker, world, given):
    import torch.multiprocessing as mp

    mp.spawn(worker, args=(world, 29_500 + os.getpid() % 1000 + world, given), nprocs=world)


def bandwidth(sizes, counts):
    for world in counts:
        if world > 1:
            spawn(reduce_worker, world, [float(size) for size in sizes])


def cells(given, counts):
    for world in counts:
        spawn(ddp_worker, world, given)


if __name__ == "__main__":
    import torch

    every = [count for count in (1, 2, 4) if count <= torch.cuda.device_count()]
    {"bandwidth": bandwidth, "cells": cells}[sys.argv[1]](sys.argv[2].split(","), every)
