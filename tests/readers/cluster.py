"""Writes a cluster's telemetry of full size, for timing `ledger import telemetry`: 1,024 hosts, 65,793 tasks, 660,400 rows of events,
1.55 M of samples, some of both twice. The same bytes every time.

    cluster.py FOLDER
"""

import datetime
import os
import random
import sys
import uuid

HOSTS, TASKS, SAMPLES_A_HOST = 1024, 65_793, 1505
START = datetime.datetime(2018, 11, 8, 7, 41, 27)
JOBS = {4: "level-4", 8: "level-8", 12: "level-12"}


def moment(ms):
    at = START + datetime.timedelta(milliseconds=ms)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def main(folder):
    draw = random.Random(7)
    os.makedirs(folder, exist_ok=True)
    name = lambda: str(uuid.UUID(int=draw.getrandbits(128)))
    hosts = [f"{draw.getrandbits(128):032x}{at:06d}" for at in range(HOSTS)]
    gpus = [(f"03{draw.randrange(10**11):011d}", f"GPU-{name()}") for _ in hosts]
    level = lambda task: 12 if task >= 257 else 8 if task > 0 else 4
    tasks = [name() for _ in range(TASKS)]
    with open(f"{folder}/task-x-y.csv", "w") as file:
        file.write("taskId,jobId,x,y,level\n")
        for at, task in enumerate(tasks):
            file.write(f"{task},{JOBS[level(at)]},{at % 256},{at // 256},{level(at)}\n")

    rows, clock = [], [draw.randrange(5000) for _ in hosts]
    for at in range(TASKS):
        host = at % HOSTS
        start, save = clock[host], draw.randrange(2, 10)
        render, tile, upload = draw.randrange(20_000, 60_000), draw.randrange(500, 1500), draw.randrange(500, 3000)
        stop = start + save + render + tile + upload + 10
        edge = start + 1
        events = [("TotalRender", start, stop)]
        for event, length in [("Saving Config", save), ("Render", render), ("Tiling", tile), ("Uploading", upload)]:
            events.append((event, edge, edge + length))
            edge += length
        for event, first, last in events:
            rows += [(first, host, event, "START", at), (last, host, event, "STOP", at)]
        clock[host] = stop + draw.randrange(10, 400)
    draw.shuffle(rows)
    with open(f"{folder}/application-checkpoints.csv", "w") as file:
        file.write("timestamp,hostname,eventName,eventType,jobId,taskId\n")
        for ms, host, event, edge, at in rows + rows[:2470]:
            file.write(f"{moment(ms)},{hosts[host]},{event},{edge},{JOBS[level(at)]},{tasks[at]}\n")

    step = max(clock) / SAMPLES_A_HOST
    with open(f"{folder}/gpu.csv", "w") as file:
        file.write("timestamp,hostname,gpuSerial,gpuUUID,powerDrawWatt,gpuTempC,gpuUtilPerc,gpuMemUtilPerc\n")
        for sample in range(SAMPLES_A_HOST):
            for host, (serial, gpu) in zip(hosts, gpus):
                busy = draw.random() < 0.8
                power = draw.uniform(80, 160) if busy else draw.uniform(24, 45)
                gpu_util, memory_util = (draw.randrange(60, 99), draw.randrange(30, 66)) if busy else (0, 0)
                at = moment(int(sample * step) + draw.randrange(30))
                line = f"{at},{host},{serial},{gpu},{power:.2f},{draw.randrange(26, 55)},{gpu_util},{memory_util}\n"
                file.write(line * (2 if draw.random() < 0.0059 else 1))


main(sys.argv[1])
