//! Which keys are asked for, and in which order.
//!
//! Items are numbers; an item's key is a bijection of its number. The items that are asked for are
//! the first ones, and the ranks of Zipf's law are theirs in random order. In workload D rank r is
//! the r-th newest item. Neighbours in the order of insertion are neighbours in memory.

use clap::ValueEnum;
use overbank_kit::zipf::Zipf;
use overbank_watched::outside::Ask;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;
use serde::Serialize;

/// Most items, inserts included.
pub const ITEMS_MAX: usize = 1 << 28;

/// A request: what, and for which item.
#[derive(Clone, Copy)]
pub struct Op(u32);

const ASK_SHIFT: u32 = 30;

impl Op {
    fn new(ask: Ask, item: u32) -> Self {
        Self((ask as u32) << ASK_SHIFT | item)
    }

    /// Returns the item.
    pub fn item(self) -> u32 {
        self.0 & ((1 << ASK_SHIFT) - 1)
    }

    /// Returns what is asked.
    pub fn ask(self) -> Ask {
        match self.0 >> ASK_SHIFT {
            0 => Ask::End,
            1 => Ask::Read,
            2 => Ask::Update,
            _ => Ask::Insert,
        }
    }
}

/// A workload of YCSB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub enum Ycsb {
    /// 50 % updates
    A,
    /// 5 % updates
    B,
    /// Reads only
    C,
    /// 5 % inserts; the newest items are asked for most
    D,
}

impl Ycsb {
    /// Returns writes in a hundred requests.
    pub fn writes_percent(self) -> u64 {
        match self {
            Ycsb::A => 50,
            Ycsb::B | Ycsb::D => 5,
            Ycsb::C => 0,
        }
    }
}

/// Where the items lie that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// Inserted first: side by side in memory, as the first records of YCSB are
    Together,
    /// Inserted at random among all others
    Scattered,
}

/// Returns the key of an item: the finaliser of splitmix64, a bijection.
pub fn key(item: u32) -> u64 {
    let mut key = (u64::from(item) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// Draws requests and orders.
pub struct Keys {
    random: Pcg64Mcg,
    zipf: Zipf,
    /// The item of each rank.
    ranks: Vec<u32>,
    ycsb: Ycsb,
    /// Items that exist.
    items: u32,
}

impl Keys {
    /// Returns a source of requests for the first `subset` of `items` items; `None` unless
    /// 1 ≤ subset ≤ items ≤ [`ITEMS_MAX`], and θ is a number not below zero.
    pub fn new(items: u32, subset: u32, theta: f64, ycsb: Ycsb, seed: u64) -> Option<Self> {
        if subset > items || items as usize > ITEMS_MAX {
            return None;
        }
        let zipf = Zipf::new(subset, theta)?;
        let random = Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(key(seed as u32)));
        let mut keys = Self { random, zipf, ranks: Vec::new(), ycsb, items };
        keys.ranks = keys.shuffled(subset);
        Some(keys)
    }

    /// Returns all items in the order of insertion.
    pub fn order(&mut self, placement: Placement) -> Vec<u32> {
        match placement {
            Placement::Together => (0..self.items).collect(),
            Placement::Scattered => self.shuffled(self.items),
        }
    }

    fn shuffled(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        for i in (1..order.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            order.swap(i, j);
        }
        order
    }

    /// Draws the next `n` requests.
    pub fn draw(&mut self, n: usize) -> Vec<Op> {
        (0..n).map(|_| self.op()).collect()
    }

    fn op(&mut self) -> Op {
        let write = self.ycsb.writes_percent() > 0 && self.below(100) < self.ycsb.writes_percent();
        if write && self.ycsb == Ycsb::D {
            self.items += 1;
            return Op::new(Ask::Insert, self.items - 1);
        }
        let rank = self.zipf.rank(self.random.next_u64());
        let newest = self.items - 1;
        let item = if self.ycsb == Ycsb::D { newest - rank } else { self.ranks[rank as usize] };
        Op::new(if write { Ask::Update } else { Ask::Read }, item)
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(n)) >> 64) as u64
    }
}
