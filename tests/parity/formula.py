"""Parameters and inputs that both sides compute, and the lines that are compared. See src/train/models/parity.rs."""
import numpy as np
import torch

U32 = np.uint32


def _hash(h):
    h = (h ^ (h >> U32(16))) * U32(0x85EBCA6B)
    h = (h ^ (h >> U32(13))) * U32(0xC2B2AE35)
    return h ^ (h >> U32(16))


def sequence(name, length):
    """The first values of a sequence with this name, float32 in [-1, 1)."""
    key = 0x811C9DC5
    for byte in name.encode():
        key = ((key ^ byte) * 0x01000193) & 0xFFFFFFFF
    with np.errstate(over="ignore"):
        n = np.arange(length, dtype=U32)
        bits = _hash(_hash(n * U32(0x9E3779B9)) + U32(key))
    return (bits >> U32(8)).astype(np.float32) * np.float32(2.0 / 16777216.0) - np.float32(1.0)


def values(name, shape):
    """Values for a parameter or a running statistic of OUR shape (linear weights are [in, out])."""
    length = int(np.prod(shape))
    if len(shape) == 1 and name.endswith("bn3.weight"):
        middle, bound = 0.1, 0.02
    elif len(shape) == 1:
        middle, bound = (1.0, 0.2) if name.endswith(("weight", "var")) else (0.0, 0.1)
    else:
        middle, bound = 0.0, np.sqrt(3.0 / (length // max(shape)))
    return (np.float32(middle) + np.float32(bound) * sequence(name, length)).reshape(shape)


def images(rows, channels, side):
    return torch.from_numpy(2 * sequence("input", rows * channels * side * side).reshape(rows, channels, side, side))


def below(name, length, bound):
    """Whole numbers below a bound."""
    share = sequence(name, length).astype(np.float64) / 2 + 0.5
    return torch.from_numpy(np.floor(share * bound).astype(np.int64))


def line(name, tensor):
    """Norm, and product with the sequence of that name."""
    flat = tensor.detach().reshape(-1).to(torch.float64).numpy()
    norm = float(np.sqrt((flat * flat).sum()))
    product = float((flat * sequence(name, len(flat)).astype(np.float64)).sum())
    return f"{name} {norm!r} {product!r}"


if __name__ == "__main__":
    print([float(sequence("input", 2)[i]) for i in range(2)], float(sequence("fc.weight", 70001)[70000]))
    print(below("input", 8, 100).tolist())
