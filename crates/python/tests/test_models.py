import math

import numpy as np
import pytest

import overbank


def occupied(slots: int, alpha: float) -> float:
    """E[min(X, m)] / (α·m) of a Poisson X: appendix A of the paper."""
    mean = alpha * slots
    poisson = [math.exp(-mean + n * math.log(mean) - math.lgamma(n + 1)) for n in range(400)]
    return sum(min(n, slots) * p for n, p in enumerate(poisson)) / mean


def test_set_associative_as_the_formula_has_it() -> None:
    alphas = np.array([0.25, 0.5, 0.95, 1.0, 2.0])
    for slots in (1, 4, 8, 16):
        rates = overbank.hit_rate(f"set-{slots}", alphas)
        assert np.allclose(rates, [occupied(slots, alpha) for alpha in alphas], atol=1e-9)
        assert overbank.hit_rate(f"set-{slots}", 0.5) == rates[1]
    # The paper's E[c] = 3.583 of 2-4 BLP at α = 0.95, section appendix B.
    assert overbank.hit_rate("blp-2-4", 0.95) * 0.95 * 4 == pytest.approx(3.583, abs=5e-4)


@pytest.mark.parametrize("geometry", ["set-4", "set-8", "blp-2-4", "blp-2-16"])
@pytest.mark.parametrize("theta", [0.0, 0.9])
def test_models_are_what_the_caches_do(geometry: str, theta: float) -> None:
    entries, alpha, rng = 1 << 13, 1.5, np.random.default_rng(1)
    flows = int(alpha * entries)
    weights = np.arange(1, flows + 1) ** -theta
    shares = np.cumsum(weights) / weights.sum()
    draw = lambda count: np.searchsorted(shares, rng.random(count)).astype(np.uint32)
    cache = overbank.Cache(geometry, entries, value_bits=32, seed=1)
    cache.process(draw(60 * flows))
    measured = cache.process(draw(20 * flows)).mean()
    model = overbank.hit_rate(geometry, alpha, theta, entries=entries)
    assert measured == pytest.approx(model, abs=0.012)


def test_refuses_in_one_line() -> None:
    of = overbank.hit_rate
    for call, error, text in [
        (lambda: of("lru-4", 1.0), ValueError, "expected set-M, blp-H-M or cuckoo-H-M"),
        (lambda: of("set-4+pblru", 1.0), ValueError, "random eviction, not of pblru"),
        (lambda: of(overbank.Design("set-4+pblru"), 1.0), ValueError, "not of pblru"),
        (lambda: of("blp-3-5", 1.0, 0.9), ValueError, "with skew, one of set-4"),
        (lambda: of("set-4", 0.0), ValueError, "α = 0: expected more than 0"),
        (lambda: of("set-4", float("nan")), ValueError, "α = NaN"),
        (lambda: of("set-4", np.array([1.0, np.inf])), ValueError, "α = inf"),
        (lambda: of("set-4", np.array([1, 2])), TypeError, "alpha: dtype int64; expected float64"),
        (lambda: of("set-4", "1"), TypeError, "alpha: str"),
        (lambda: of("set-4", 1.0, -0.5), ValueError, "theta -0.5"),
        (lambda: of("set-4", 1.0, float("nan")), ValueError, "theta NaN"),
        (lambda: of("set-4", 1.0, 0.9, entries=0), ValueError, "entries 0"),
        (lambda: of("set-16", 1.0, 0.9, entries=8), ValueError, "entries 8: set-16 has at least"),
        (lambda: of("set-4", 1e-9, 0.9, entries=8), ValueError, "0 flows"),
        (lambda: of(4, 1.0), TypeError, "geometry: int"),
    ]:
        with pytest.raises(error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert of(overbank.Design("set-4"), 1.0) == of("set-4", 1.0)
    # One number in an array stays in an array; none, too.
    assert of("set-4", np.array([1.0])).tolist() == [of("set-4", 1)]
    assert of("set-4", np.zeros(0)).tolist() == []
