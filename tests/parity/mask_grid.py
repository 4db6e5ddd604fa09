"""Masks to the grids of a mask head and back with torchvision. Needs torch and torchvision; writes mask_grid.txt beside it.

Masks, boxes and probabilities come from one formula that both sides have, so that the file holds results alone.
See src/train/detection/mask/grid/parity.rs.
"""

import pathlib

import torch
from torchvision.models.detection.roi_heads import paste_masks_in_image, project_masks_on_boxes

TARGETS = 40
PASTES = 120


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


def bitmap(draw):
    """Three rectangles in a picture of some size."""
    height, width = 20 + draw.below(60), 20 + draw.below(60)
    mask = torch.zeros(height, width)
    for _ in range(3):
        left, top = draw.below(width), draw.below(height)
        right, bottom = left + 1 + draw.below(width), top + 1 + draw.below(height)
        mask[top:bottom, left:right] = 1.0
    return mask


def box(draw, height, width):
    """Within the picture, but for every fourth, which goes beyond it."""
    edges = sorted(draw.below(width * 16) / 16.0 for _ in range(2)), sorted(draw.below(height * 16) / 16.0 for _ in range(2))
    (left, right), (top, bottom) = edges
    beyond = 6.0 if draw.below(4) == 0 else 0.0
    return torch.tensor([left - beyond, top - beyond, right + beyond, bottom + beyond])


def targets():
    draw = Draw(3)
    for n in range(TARGETS):
        mask = bitmap(draw)
        bounds, side = box(draw, *mask.shape), [2, 5, 7][draw.below(3)]
        grid = project_masks_on_boxes(mask[None], bounds[None], torch.tensor([0]), side)[0]
        yield f"target.{n} {side} " + " ".join(f"{float(value):.6f}" for value in grid.flatten())


def counts(mask):
    """Lengths of runs down the columns, the first of clear pixels."""
    lengths, set_now = [0], False
    for pixel in mask.t().flatten().tolist():
        if pixel != set_now:
            lengths.append(0)
            set_now = pixel
        lengths[-1] += 1
    return lengths


def pastes():
    draw = Draw(4)
    for n in range(PASTES):
        height, width = 20 + draw.below(90), 20 + draw.below(90)
        bounds, side = box(draw, height, width), [4, 14, 28][draw.below(3)]
        grid = torch.tensor([draw.below(4096) / 4096.0 for _ in range(side * side)]).reshape(1, 1, side, side)
        mask = paste_masks_in_image(grid, bounds[None], (height, width))[0, 0] > 0.5
        yield f"paste.{n} {int(mask.sum())} {fnv(' '.join(map(str, counts(mask))).encode()):016x}"


if __name__ == "__main__":
    text = "".join(line + "\n" for line in [*targets(), *pastes()])
    pathlib.Path(__file__).with_name("mask_grid.txt").write_text(text)
