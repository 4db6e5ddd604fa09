"""Masks of polygons and mean average precision with pycocotools. Needs numpy and pycocotools; writes coco.txt beside it.

Polygons, truths and detections come from one formula that both sides have, so that the file holds results alone.
See src/train/detection/mean_average_precision/parity.rs and src/train/detection/mask/parity.rs.
"""

import contextlib
import io
import pathlib

import numpy as np
from pycocotools import mask as masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

SETS = 7
CLASSES = 8
POLYGONS = 400


class Draw:
    """Knuth's linear congruential generator of 64 bits (MMIX), of which the upper 31 are taken."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound


def fnv(text):
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def merged(polygons, width, height):
    return masks.merge(masks.frPyObjects(polygons, height, width))


def polygon_lines():
    draw = Draw(1)
    for n in range(POLYGONS):
        width, height = 1 + draw.below(90), 1 + draw.below(90)
        parts = 1 if n % 3 else 1 + draw.below(3)
        unit = [1.0, 2.0, 4.0, 10.0, 100.0, 1000.0][n % 6]
        margin = 30 if n % 4 == 0 else 0
        polygons = []
        for _ in range(parts):
            corners = []
            for _ in range(3 + draw.below(10)):
                for side in (width, height):
                    corners.append((draw.below((side + 2 * margin) * int(unit) + 1) - margin * int(unit)) / unit)
            polygons.append(corners)
        mask = merged(polygons, width, height)
        box = " ".join(str(int(number)) for number in masks.toBbox(mask))
        yield f"polygon.{n} {int(masks.area(mask))} {box} {fnv(mask['counts']):016x}"


def score(draw, image):
    """In every second image scores are coarse, so that many are equal."""
    return draw.below(16) / 16.0 if image % 2 == 0 else draw.below(65536) / 65536.0


def classes(draw, truth):
    """Classes 6 and 7 have no truths, 5 and 7 no detections."""
    return draw.below(6) if truth else [0, 1, 2, 3, 4, 6][draw.below(6)]


def counts(draw, number, image):
    """How many truths, and how many detections that have nothing to do with them."""
    truths, stray = draw.below(8), draw.below(6)
    if image == 3 or number == 7:
        truths = 0
    if image == 4:
        stray = 130
    return truths, stray


def copies(draw, number, image):
    """How many detections come from a truth."""
    drawn = draw.below(4)
    return 0 if image == 2 or number == 6 else drawn


def box_set(number):
    draw = Draw(100 + number)
    truths, found = [], []

    def bounds():
        least, spread = [(16, 200), (128, 400), (384, 800)][draw.below(3)]
        width, height = (least + draw.below(spread)) / 4.0, (least + draw.below(spread)) / 4.0
        return [draw.below(1400) / 4.0, draw.below(1000) / 4.0, width, height]

    def moved(box):
        reach = [1, 4, 8][draw.below(3)]
        step = [(draw.below(2 * reach + 1) - reach) / 32.0 for _ in range(4)]
        left, top, width, height = box
        return [left + step[0] * width / 2, top + step[1] * height / 2, width + step[2] * width, height + step[3] * height]

    for image in range(1 if number == 5 else 24):
        many, stray = counts(draw, number, image)
        for _ in range(many):
            kind, box, crowd = classes(draw, True), bounds(), draw.below(8) == 0
            area = box[2] * box[3] * (50 + draw.below(50)) / 100.0
            truths.append(dict(image_id=image + 1, category_id=kind, bbox=box, area=area, iscrowd=int(crowd)))
            for _ in range(copies(draw, number, image)):
                kind_found = classes(draw, False) if draw.below(8) == 0 or kind == 5 else kind
                found.append((image + 1, kind_found, score(draw, image), moved(box)))
        for _ in range(stray):
            kind = 0 if image == 4 else classes(draw, False)
            found.append((image + 1, kind, score(draw, image), bounds()))
    detections = [dict(image_id=i, category_id=k, score=s, bbox=b) for i, k, s, b in found]
    return truths, detections


WIDTH, HEIGHT = 170, 130


def mask_set(number):
    draw = Draw(200 + number)
    truths, found = [], []

    def outline():
        least, spread = [(5, 30), (20, 60), (90, 75)][draw.below(3)]
        width, height = least + draw.below(spread), least + draw.below(spread)
        left, top = draw.below(WIDTH * 10) / 10.0 - width / 2.0, draw.below(HEIGHT * 10) / 10.0 - height / 2.0
        corners = []
        # A diamond whose corners wander: large enough for every range of areas.
        for x, y in ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)):
            corners.append(left + x * width + draw.below(width * 2 + 1) / 10.0)
            corners.append(top + y * height + draw.below(height * 2 + 1) / 10.0)
        return corners

    def outlines():
        return [outline() for _ in range(1 + draw.below(2))]

    def moved(polygons):
        far = [3, 10, 30, 100][draw.below(4)]
        return [[corner + (draw.below(far) - far // 2) / 10.0 for corner in corners] for corners in polygons]

    for image in range(1 if number == 5 else 12):
        many, stray = counts(draw, number, image)
        for _ in range(many):
            kind, polygons, crowd = classes(draw, True), outlines(), draw.below(8) == 0
            mask = merged(polygons, WIDTH, HEIGHT)
            truths.append(
                dict(
                    image_id=image + 1,
                    category_id=kind,
                    segmentation=mask if crowd else polygons,
                    bbox=list(masks.toBbox(mask)),
                    area=float(masks.area(mask)),
                    iscrowd=int(crowd),
                )
            )
            for _ in range(copies(draw, number, image)):
                kind_found = classes(draw, False) if draw.below(8) == 0 or kind == 5 else kind
                found.append((image + 1, kind_found, score(draw, image), moved(polygons)))
        for _ in range(stray):
            kind = 0 if image == 4 else classes(draw, False)
            found.append((image + 1, kind, score(draw, image), outlines()))
    detections = [
        dict(image_id=i, category_id=k, score=s, segmentation=merged(p, WIDTH, HEIGHT)) for i, k, s, p in found
    ]
    return truths, detections


def evaluate(truths, detections, kind, images):
    """The twelve numbers, then the average precision of each class."""
    with contextlib.redirect_stdout(io.StringIO()):
        there = COCO()
        there.dataset = dict(
            info={},
            images=[dict(id=n + 1, width=WIDTH, height=HEIGHT) for n in range(images)],
            categories=[dict(id=n, name=str(n)) for n in range(CLASSES)],
            # From 1, for pycocotools never matches a truth with the id 0.
            annotations=[dict(truth, id=n + 1) for n, truth in enumerate(truths)],
        )
        there.createIndex()
        evaluation = COCOeval(there, there.loadRes(detections), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, 0, 2]
    of_classes = [precision[:, :, n] for n in range(CLASSES)]
    return [*evaluation.stats, *(np.mean(one[one > -1]) if (one > -1).any() else -1 for one in of_classes)]


def lines():
    yield from polygon_lines()
    thresholds = COCOeval(iouType="bbox").params.iouThrs
    yield "thresholds " + " ".join(repr(float(one)) for one in thresholds)
    for name, made, kind in (("boxes", box_set, "bbox"), ("masks", mask_set, "segm")):
        for number in range(1, SETS + 1):
            truths, detections = made(number)
            if not detections:
                # pycocotools cannot take an empty list: one of a class without truths, in the last place, changes nothing.
                detections = [dict(made(1)[1][0], image_id=1, category_id=7, score=0.0)]
            images = 1 if number == 5 else 24 if name == "boxes" else 12
            numbers = evaluate(truths, detections, kind, images)
            yield f"{name}.{number} {len(truths)} {len(detections)} " + " ".join(repr(float(one)) for one in numbers)


if __name__ == "__main__":
    text = "".join(line + "\n" for line in lines())
    pathlib.Path(__file__).with_name("coco.txt").write_text(text)
