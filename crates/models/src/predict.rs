//! Hit rates by calculation for any popularity of flows: random eviction, every geometry.
//!
//! *The model.* Packets are drawn independently, flow i with probability proportional to wᵢ. A miss
//! of flow i overwrites each of its H·m candidate slots with the same probability, so flow j leaves
//! for i at rate wᵢ/(H·m), and i leaves for j at rate wⱼ/(H·m): the chain of table states is
//! reversible, and in the end a state σ (which flow lies in which slot) has the probability
//!
//! ```text
//! π(σ) ∝ ∏ wᵢ  over the flows i that are in σ
//! ```
//!
//! over the states that fill as many slots as can be filled. (For one set this is the product form
//! of Gelenbe 1973 for RANDOM, and of King 1971 for FIFO.) The empty slots are weighed by a
//! fugacity z: π(σ) ∝ ∏ z·wᵢ, and z → ∞ is the end. What is left is counting, by geometry:
//!
//! - *set-m*: a bucket by itself. e_k are the elementary symmetric polynomials of the z·wᵢ of its
//!   flows; k flows in m labelled slots count m!/(m−k)! times.
//! - *BLP H-m*: the state before a bucket is how many flows of earlier homes lie in it and in each
//!   of the next H−2; a product of transfer matrices along the buckets, forwards and backwards,
//!   exact.
//! - *cuckoo-lite 2-m*: flows are the edges of a random graph of buckets, which looks like a tree
//!   from near by; belief propagation with a new random graph each step. Near α = 1 it takes a
//!   hundred steps to settle.
//!
//! Each gives, for a bucket (or two), the weights Z₀ without and Z₁ with one more flow: a flow of
//! weight w is there with probability z·w·Z₁ / (Z₀ + z·w·Z₁).
//!
//! *Warm-up.* A flow that has not come yet is not there: after a time t, in packets per flow, flow
//! i is taken to be there with h·(1 − exp(−wᵢ·t/h)), h its share of the time in the end. What this
//! does not say is how slowly the last free slots of BLP and cuckoo-lite fill when α is near 1:
//! after 20 packets per flow real tables are up to 1.5 points short of the end, after 40 about one.
//!
//! The sums go over an instance of some thousand slots: its flows are taken evenly from the law and
//! thrown into buckets at random, so that α and the popularities are exact and only the throw is
//! random. For BLP it is no longer than the table, whose buffer buckets count in small ones. Cost:
//! milliseconds to a tenth of a second. Accuracy: within a point of the real tables (see the
//! tests).

use crate::geometry::{AnyGeometry, Family};
use crate::law::Law;
use overbank::cache::GeometryKind;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::RngCore;

/// How likely a flow of some weight is in the table: pairs (Z₁/Z₀ of a throw), and the fugacity.
#[derive(Clone, Debug)]
pub struct Presence {
    ratios: Vec<f64>,
    fugacity: f64,
}

impl Presence {
    /// Returns the probability that a flow of this weight is there.
    pub fn of(&self, weight: f64) -> f64 {
        let u = self.fugacity * weight;
        let sum: f64 = self.ratios.iter().map(|r| u * r / (1.0 + u * r)).sum();
        sum / self.ratios.len() as f64
    }
}

const RATIOS_MAX: usize = 1024;
/// Work that the flows of an instance may cost, in multiplications.
const BUDGET: usize = 6_000_000;
/// Steps that a pass along the buckets of BLP may take.
const BUDGET_STEPS: usize = 10_000_000;
/// The fugacity that stands for the end where slots may be left over, and where they cannot.
const FUGACITY_END: f64 = 1e4;
const FUGACITY_CROWDED: f64 = 10.0;
/// More flows than slots by this factor: no slot stays empty for long.
const CROWDED: f64 = 4.0;

/// A table of `entries` slots under a law of popularity.
pub struct Model<'a> {
    family: Family,
    h: usize,
    m: usize,
    law: &'a Law,
    /// Flows over slots, buffer buckets not counted.
    alpha: f64,
    /// Buckets of the table, buffer buckets not counted.
    buckets: usize,
}

impl<'a> Model<'a> {
    pub fn new(geometry: GeometryKind, entries: usize, law: &'a Law) -> Model<'a> {
        let AnyGeometry { family, h, m } = geometry.into();
        let (h, m) = (h as usize, m as usize);
        let alpha = law.flows() / entries.max(1) as f64;
        Model { family, h, m, law, alpha, buckets: (entries / m).max(1) }
    }

    /// Returns where the table ends up, after any number of packets.
    pub fn settled(&self) -> Presence {
        let crowded = self.alpha > CROWDED;
        self.at(if crowded { FUGACITY_CROWDED } else { FUGACITY_END })
    }

    /// Returns the share of hits among packets that come from `from` to `to` packets per flow after
    /// the start with an empty table, under the law itself.
    pub fn hit_rate(&self, from: f64, to: f64) -> f64 {
        let settled = self.settled();
        self.law.per_packet(|weight| {
            let h = settled.of(weight);
            if h <= 0.0 || to <= from {
                return h;
            }
            let rate = weight / h;
            // The mean of h·(1 − exp(−rate·t)).
            let decayed = ((-rate * from).exp() - (-rate * to).exp()) / (rate * (to - from));
            h * (1.0 - decayed)
        })
    }

    /// Returns the share of hits of a given set of packets in random order, once, from an empty
    /// table on: each flow's first packet misses. `packets_per_flow` is their number over that of
    /// the flows.
    pub fn hit_rate_once(&self, packets_per_flow: f64) -> f64 {
        let settled = self.settled();
        self.law.per_packet(|weight| {
            let packets = (weight * packets_per_flow).max(1.0);
            settled.of(weight) * (packets - 1.0) / packets
        })
    }

    fn at(&self, fugacity: f64) -> Presence {
        let Model { family, h, m, .. } = *self;
        let per_bucket = (self.alpha * m as f64).max(0.1);
        let (steps, degree) = match family {
            Family::Blp => (steps(h, m), h * m),
            Family::Set | Family::Cuckoo => (Vec::new(), m),
        };
        let by_flows = BUDGET / (per_bucket as usize * degree + 1);
        let by_steps = BUDGET_STEPS / (steps.len() + 1);
        let buckets = by_flows.min(by_steps).clamp(8, 16_384 / m);
        let mut rng = Pcg32::new(1, 0x0b4e_6ba5);
        // A chain no longer than the table's own, so that its ends weigh as much; then several.
        let own = buckets.min(self.buckets);
        let mut ratios: Vec<f64> = match family {
            Family::Set => self.sets(buckets, fugacity, &mut rng),
            Family::Blp => (0..(buckets / own).max(1))
                .flat_map(|_| self.chain(own, &steps, fugacity, &mut rng))
                .collect(),
            Family::Cuckoo => self.graph(buckets, fugacity, &mut rng),
        };
        // Few numbers say the same as many: means over neighbours in the sorted list.
        ratios.sort_by(f64::total_cmp);
        let step = ratios.len().div_ceil(RATIOS_MAX);
        let ratios = ratios.chunks(step).map(|c| c.iter().sum::<f64>() / c.len() as f64).collect();
        Presence { ratios, fugacity }
    }

    /// Throws the flows of an instance into buckets; `ends` bucket choices each.
    fn throw(&self, buckets: usize, ends: f64, rng: &mut Pcg32) -> Vec<Vec<f64>> {
        let count = (self.alpha * (buckets * self.m) as f64 * ends).round() as usize;
        let offset = f64::from(rng.next_u32()) / 2f64.powi(32);
        let mut thrown = vec![Vec::new(); buckets];
        for weight in self.law.sample(count.max(1), offset) {
            let bucket = (u64::from(rng.next_u32()) * buckets as u64) >> 32;
            thrown[bucket as usize].push(weight);
        }
        thrown
    }

    fn sets(&self, buckets: usize, fugacity: f64, rng: &mut Pcg32) -> Vec<f64> {
        let ways = arrangements(self.m);
        let thrown = self.throw(buckets, 1.0, rng);
        let mut e = vec![0.0; self.m + 1];
        let ratio = |weights: &Vec<f64>| {
            symmetric(weights.iter().map(|w| fugacity * w), &mut e);
            bucket_ratio(&e, &ways)
        };
        thrown.iter().map(ratio).collect()
    }

    fn chain(&self, buckets: usize, steps: &[Step], fugacity: f64, rng: &mut Pcg32) -> Vec<f64> {
        let Model { h, m, .. } = *self;
        let states = (m + 1).pow(h as u32 - 1);
        // Symmetric polynomials of each bucket's flows; one at the front for k = −1.
        let polynomials: Vec<Vec<f64>> = self
            .throw(buckets, 1.0, rng)
            .iter()
            .map(|weights| {
                let mut e = vec![0.0; h * m + 2];
                symmetric(weights.iter().map(|w| fugacity * w), &mut e[1..]);
                e
            })
            .collect();
        let normalise = |v: &mut Vec<f64>| {
            let sum: f64 = v.iter().sum();
            v.iter_mut().for_each(|x| *x /= sum);
        };
        // Backwards: what lies to the right of a bucket, by the state before it. Behind the last
        // one the buffer buckets have room for all that spill over.
        let mut right = vec![vec![1.0; states]; buckets + 1];
        for (i, e) in polynomials.iter().enumerate().rev() {
            let mut here = vec![0.0; states];
            steps.iter().for_each(|s| {
                here[s.from] += s.factor * e[s.flows + 1] * right[i + 1][s.to];
            });
            normalise(&mut here);
            right[i] = here;
        }
        let mut left = vec![0.0; states];
        left[0] = 1.0;
        let mut ratios = Vec::with_capacity(buckets);
        for (i, e) in polynomials.iter().enumerate() {
            let (mut without, mut with) = (0.0, 0.0);
            let mut next = vec![0.0; states];
            for s in steps {
                let before = left[s.from] * s.factor;
                let after = right[i + 1][s.to];
                without += before * e[s.flows + 1] * after;
                with += before * e[s.flows] * after;
                next[s.to] += before * e[s.flows + 1];
            }
            ratios.push(with / without);
            normalise(&mut next);
            left = next;
        }
        ratios
    }

    fn graph(&self, buckets: usize, fugacity: f64, rng: &mut Pcg32) -> Vec<f64> {
        const STEPS: usize = 160;
        let m = self.m;
        let ways = arrangements(m);
        let buckets = (buckets / 8).max(64);
        // How gladly a bucket takes one more flow; at first as if it were empty.
        let mut glad = vec![m as f64; buckets];
        let mut e = vec![0.0; m + 1];
        for _ in 0..STEPS {
            let thrown = self.throw(buckets, 2.0, rng);
            let mut next = Vec::with_capacity(buckets);
            for weights in &thrown {
                let seen = weights.iter().map(|w| {
                    let other = (u64::from(rng.next_u32()) * buckets as u64) >> 32;
                    let u = fugacity * w;
                    u / (1.0 + u * glad[other as usize])
                });
                symmetric(seen, &mut e);
                next.push(bucket_ratio(&e, &ways));
            }
            glad = next;
        }
        // A flow sees two buckets.
        (0..buckets).map(|i| glad[i] + glad[(i * 7 + 1) % buckets]).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns Z₁/Z₀ of a bucket by itself.
fn bucket_ratio(e: &[f64], ways: &[f64]) -> f64 {
    dot(&e[..e.len() - 1], &ways[1..]) / dot(e, ways)
}

/// Computes the elementary symmetric polynomials e₀, e₁, … of the values.
fn symmetric(values: impl Iterator<Item = f64>, e: &mut [f64]) {
    e.fill(0.0);
    e[0] = 1.0;
    for value in values {
        for k in (1..e.len()).rev() {
            e[k] += value * e[k - 1];
        }
    }
}

fn arrangements(m: usize) -> Vec<f64> {
    std::iter::successors(Some((0, 1.0)), |&(k, ways)| Some((k + 1, ways * (m - k) as f64)))
        .take(m + 1)
        .map(|(_, ways)| ways)
        .collect()
}

/// One way in which the flows of a bucket lie: `flows` of them in all, of which the states say
/// where those that went before and those that spill over lie.
struct Step {
    from: usize,
    to: usize,
    flows: usize,
    /// In how many ways, with those that were in the bucket before.
    factor: f64,
}

/// Returns all ways of BLP H-m. A state is how many flows lie in the next bucket, the one after it,
/// and so on to the H−1st, as a number to the base m+1, the next bucket's digit last.
fn steps(h: usize, m: usize) -> Vec<Step> {
    let ways = arrangements(m);
    let states = (m + 1).pow(h as u32 - 1);
    let mut steps = Vec::new();
    for from in 0..states {
        // (choices made, their number, weight k!/∏kⱼ! so far, new state), bucket by bucket.
        let mut partial = vec![(0, 1.0, 0)];
        for j in 0..h {
            let taken = if j + 1 < h { from / (m + 1).pow(j as u32) % (m + 1) } else { 0 };
            partial = partial
                .into_iter()
                .flat_map(|(flows, weight, to)| {
                    let ways = &ways;
                    (0..=m - taken).map(move |k| {
                        let chosen = binomial(flows + k, k) * weight;
                        if j == 0 {
                            return (k, chosen * ways[taken + k], 0);
                        }
                        (flows + k, chosen, to + (taken + k) * (m + 1).pow(j as u32 - 1))
                    })
                })
                .collect();
        }
        let step = |(flows, factor, to)| Step { from, to, flows, factor };
        steps.extend(partial.into_iter().map(step));
    }
    steps
}

fn binomial(n: usize, k: usize) -> f64 {
    (1..=k).fold(1.0, |product, i| product * (n + 1 - i) as f64 / i as f64)
}
