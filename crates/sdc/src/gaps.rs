//! What the paper leaves open, and what this machine does: for records to quote.

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// What is decided, in a word or two.
    pub name: &'static str,
    /// The decision.
    pub text: &'static str,
}

/// All decisions of this crate.
pub const GAPS: &[Gap] = &[
    Gap {
        name: "ways",
        text: "line in set = the hash above slot and set, modulo the ways: 12 ways are no power of \
               two; with families of 8 the second one has 4 segments",
    },
    Gap {
        name: "hash bits",
        text: "xorshift is Marsaglia's (13, 7, 17), cut from its low bits; sub-tags take \
               hash64shift's low bits",
    },
    Gap {
        name: "sub-tag",
        text: "family segment lowest, Hash2 above; with fewer bits than the segment has, its high \
               bits are cut; a value of n slots has n times the bits, the first slot's first",
    },
    Gap {
        name: "size",
        text: "a lookup compares values of the same size alone; inserts and invalidations clear \
               equal sub-tags of every size, so that no key has two values",
    },
    Gap {
        name: "choice",
        text: "the paper chooses at random between slots with equal sub-tags; there are never two, \
               since an insert clears its equals",
    },
    Gap {
        name: "order in a family",
        text: "a free slot is looked for, and CLOCK goes around, in LRU's order, least recently \
               used line first; CLOCK keeps no hand, which would take bits",
    },
    Gap {
        name: "reference",
        text: "hits set the reference bits of all slots of the value; inserts clear them",
    },
    Gap {
        name: "use",
        text: "hits and inserts count as uses of the line for LRU; misses and invalidations do not",
    },
    Gap {
        name: "empty lines",
        text: "an SDC line whose slots are all invalid stays SDC's until LRU replaces it",
    },
    Gap {
        name: "status",
        text: "sizes other than 1, 2, 4 or 8 words and process numbers beyond the bits do nothing, \
               take no time and report failure",
    },
    Gap {
        name: "third machine",
        text: "with one slot a line, set and line in set start at the hash's lowest bit, and \
               sub-tags keep the bits of 8-byte slots, so that false hits stay comparable",
    },
    Gap {
        name: "latencies",
        text: "add up from level to level, as in gem5's classic caches: an LLC hit takes 3 + 22; \
               an SDC operation of any kind takes 29 in all, hit or miss",
    },
    Gap {
        name: "addresses",
        text: "virtual addresses serve as physical ones, in caches and in DRAM",
    },
    Gap {
        name: "page table",
        text: "one array of 8-byte entries a level, read through the levels below L1; no cache of \
               upper levels; a walk's accesses wait one after the other",
    },
    Gap {
        name: "writebacks",
        text: "take no time; they are a use of the line below, which is allocated without a read; \
               those of the LLC open rows",
    },
    Gap { name: "stores", text: "a store that misses waits for its line like a load" },
    Gap {
        name: "overlap",
        text: "addresses show no dependences: up to 4 misses within 32 accesses, each at most 8 \
               lines from the one before, wait together for the longest; a miss farther away is \
               taken for a followed pointer; an SDC operation ends a group",
    },
    Gap {
        name: "SLB",
        text: "the paper's text says that it copies items, its published code is not free: both \
               forms run, one with copies of items (slb-items), one with their addresses (slb)",
    },
    Gap {
        name: "items",
        text: "begin at a line, those smaller than a line at a multiple of their size, so that no \
               earlier allocation decides how many lines a lookup reads; malloc aligns to 16 bytes, \
               and an item of 8 + 8 bytes would straddle lines half of the time",
    },
    Gap {
        name: "placement",
        text: "the paper does not say where the items of a subset lie: side by side, as the first \
               records of YCSB (--placement together), unless a record says otherwise",
    },
    Gap {
        name: "not modelled",
        text: "fetches of instructions, prefetchers, refresh and queues of DRAM, other sockets",
    },
];
