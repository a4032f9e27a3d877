"""Hit rate against α, flows per slot: five designs of flow caches, beside the models.

    python examples/hit_rate.py [--entries N] [-o hit_rate.png]

Points are measured with the real tables, lines are calculated. Needs matplotlib:
`pip install ./crates/python[plot]`.
"""

# %% What is compared
import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import overbank

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("--entries", type=int, default=1 << 14, help="slots of each cache")
arguments.add_argument("--seed", type=int, default=1)
arguments.add_argument("-o", "--output", default="hit_rate.png")
arguments = arguments.parse_args()

DESIGNS = ["set-4", "set-8", "blp-2-4", "cuckoo-2-4", "blp-2-16"]
COLOURS = ["#8c8c8c", "#e69f00", "#0072b2", "#009e73", "#cc3d6e"]
MARKERS = ["o", "s", "D", "^", "v"]
THETAS = [0.0, 0.99]
ALPHAS = np.array([0.5, 0.75, 0.95, 1.25, 1.5, 2.0])
# From an empty table on; around α = 1 the last slots fill slowly.
WARM_UP, MEASURED = 60, 10


# %% Traffic: flow i comes with a probability proportional to (i + 1) ** -theta
def traffic(flows: int, theta: float, packets: int, rng: np.random.Generator) -> np.ndarray:
    shares = np.cumsum(np.arange(1, flows + 1) ** -theta)
    return np.searchsorted(shares, rng.random(packets) * shares[-1]).astype(np.uint32)


# %% The hit rate of a real table
def measure(design: str, alpha: float, theta: float) -> float:
    rng = np.random.default_rng(arguments.seed)
    flows = round(alpha * arguments.entries)
    cache = overbank.Cache(design, arguments.entries, value_bits=32, seed=arguments.seed)
    for _ in range(WARM_UP // 10):
        cache.process(traffic(flows, theta, 10 * flows, rng))
    return float(cache.process(traffic(flows, theta, MEASURED * flows, rng)).mean())


measured = {
    (design, theta): np.array([measure(design, alpha, theta) for alpha in ALPHAS])
    for theta in THETAS
    for design in DESIGNS
}

# %% The same by calculation, on a finer grid; with skew, at the size that was measured
GRID = {theta: np.linspace(ALPHAS[0], ALPHAS[-1], 25 if theta else 61) for theta in THETAS}
models = {
    (design, theta): overbank.hit_rate(design, GRID[theta], theta, entries=arguments.entries)
    for theta in THETAS
    for design in DESIGNS
}

# %% The picture
plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
figure, panels = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
for panel, theta in zip(panels, THETAS):
    for design, colour, marker in zip(DESIGNS, COLOURS, MARKERS):
        panel.plot(GRID[theta], 100 * models[design, theta], color=colour, linewidth=1.4, zorder=2)
        look = {"s": 38, "color": colour, "edgecolor": "white", "linewidth": 0.7, "zorder": 3}
        panel.scatter(ALPHAS, 100 * measured[design, theta], marker=marker, label=design, **look)
    panel.set_title("all flows as popular" if theta == 0 else f"Zipf, θ = {theta}", loc="left")
    panel.set_xlabel("α: flows per slot")
    panel.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.margins(x=0.03)
panels[0].set_ylabel("hit rate, %")
panels[0].legend(frameon=False, loc="lower left", title="points: measured\nlines: model")
figure.suptitle(f"Five flow caches of {arguments.entries:,} slots with random eviction")
figure.savefig(arguments.output, dpi=150)

# %% Where they differ most: the model of cuckoo is an upper bound without skew
print(f"{'design':12}" + "".join(f"θ = {theta:<14}" for theta in THETAS))
for design in DESIGNS:
    cells = []
    for theta in THETAS:
        model = overbank.hit_rate(design, ALPHAS, theta, entries=arguments.entries)
        off = 100 * (measured[design, theta] - model)
        worst = int(np.argmax(np.abs(off)))
        cells.append(f"{off[worst]:+.2f} at α {ALPHAS[worst]:<6}")
        assert abs(off[worst]) < 2, f"{design}, θ = {theta}: {off} points off the model"
    print(f"{design:12}" + "".join(f"{cell:18}" for cell in cells))
print(f"largest differences from the model, in points; {arguments.output}")
