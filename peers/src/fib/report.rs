//! The record and the tables of `fib`.

use overbank_kit::experiment::Check;
use serde_json::{Value, json};

use super::contestant::Round;
use super::peer::{FLOOR, LIST, LIST_WAY, OVERBANK_WAYS};
use super::{Cell, Entrant, Options};
use crate::output::{Block, target};
use overbank_kit::spread::Spread;

/// Figures of one way of a peer to look up.
struct Row<'a> {
    entrant: &'a Entrant,
    way: usize,
    hit_ns: Spread,
    miss_ns: Spread,
    /// Ratio to each of [`OVERBANK_WAYS`], in the same round.
    hit_ratios: [Spread; OVERBANK_WAYS.len()],
    miss_ratios: [Spread; OVERBANK_WAYS.len()],
    writer: Option<Writer>,
}

struct Writer {
    hit_ns: Spread,
    /// Ratio to the same without writes.
    slowdown: Spread,
    changes_per_s: Spread,
    lost: u64,
}

fn rows(cell: &Cell) -> impl Iterator<Item = Row<'_>> {
    cell.entrants.iter().flat_map(|entrant| {
        (0..entrant.peer.ways.len()).map(move |way| {
            let rounds = || entrant.rounds.iter();
            let busy = || entrant.busy.iter();
            let ratios = |ns: fn(&Round) -> &[f64]| {
                std::array::from_fn(|own_way| {
                    Spread::of(rounds().map(|(round, own)| ns(round)[way] / ns(own)[own_way]))
                })
            };
            let writer = (!entrant.busy.is_empty()).then(|| Writer {
                hit_ns: Spread::of(busy().map(|b| b.busy_ns[way])),
                slowdown: Spread::of(busy().map(|b| b.busy_ns[way] / b.idle_ns[way])),
                changes_per_s: Spread::of(busy().map(|b| b.changes_per_s[way])),
                lost: busy().map(|b| b.lost).sum(),
            });
            Row {
                entrant,
                way,
                hit_ns: Spread::of(rounds().map(|(round, _)| round.hit_ns[way])),
                miss_ns: Spread::of(rounds().map(|(round, _)| round.miss_ns[way])),
                hit_ratios: ratios(|round| &round.hit_ns),
                miss_ratios: ratios(|round| &round.miss_ns),
                writer,
            }
        })
    })
}

/// Returns the least ratio to one of Overbank's ways of any way of rte_hash, for hits and for
/// misses.
fn rte_hash(cell: &Cell, own_way: usize) -> Option<(f64, f64)> {
    let best = |ratios: fn(&Row) -> [Spread; OVERBANK_WAYS.len()]| {
        rows(cell)
            .filter(|row| row.entrant.peer.name.starts_with("rte_hash"))
            .map(|row| ratios(&row)[own_way].median)
            .min_by(f64::total_cmp)
    };
    Some((best(|row| row.hit_ratios)?, best(|row| row.miss_ratios)?))
}

/// Returns the targets at a size: hits and misses of rte_hash at its best take three times those of
/// lists.
pub fn claims(cell: &Cell) -> Vec<Check> {
    let best = |ratios: fn(&Row) -> [Spread; OVERBANK_WAYS.len()]| {
        rows(cell)
            .filter(|row| row.entrant.peer.name.starts_with("rte_hash"))
            .map(|row| ratios(&row)[LIST_WAY])
            .min_by(|a, b| a.median.total_cmp(&b.median))
    };
    let found = [("hits", best(|row| row.hit_ratios)), ("misses", best(|row| row.miss_ratios))];
    let claim = |(what, ratio): (&str, Option<Spread>)| {
        let size = cell.entries as f64 / 1e6;
        let text = format!(
            "{size} M entries, {what}: time of DPDK's rte_hash at its best to lists of {LIST} keys"
        );
        Some(target(text, 3.0, ratio?))
    };
    found.into_iter().filter_map(claim).collect()
}

/// Returns a size for the JSON record.
pub fn record(cell: &Cell) -> Value {
    let rows: Vec<Value> = rows(cell)
        .map(|row| {
            let Entrant { peer, group, built, .. } = row.entrant;
            json!({
                "peer": peer.name,
                "way": peer.ways[row.way],
                "group": group,
                "hit_ns": row.hit_ns,
                "miss_ns": row.miss_ns,
                "hit_ratio": row.hit_ratios[0],
                "miss_ratio": row.miss_ratios[0],
                "hit_ratio_list": row.hit_ratios[LIST_WAY],
                "miss_ratio_list": row.miss_ratios[LIST_WAY],
                "writer": row.writer.map(|writer| json!({
                    "hit_ns": writer.hit_ns,
                    "slowdown": writer.slowdown,
                    "changes_per_s": writer.changes_per_s,
                    "lost": writer.lost,
                })),
                "built_s": built.seconds,
                "memory_bytes": built.memory_bytes,
                "bytes_per_entry": built.memory_bytes as f64 / cell.entries as f64,
                "huge_share": built.huge_share,
                "note": built.note,
            })
        })
        .collect();
    let best =
        |own_way| rte_hash(cell, own_way).map(|(hit, miss)| json!({"hit": hit, "miss": miss}));
    let left_out = cell.left_out.iter();
    json!({
        "entries": cell.entries,
        "groups": cell.groups,
        "peers": rows,
        "rte_hash_best": best(0),
        "rte_hash_best_list": best(LIST_WAY),
        "left_out": left_out.map(|(peer, bytes)| json!({"peer": peer, "bytes": bytes})).collect::<Vec<_>>(),
    })
}

/// Returns the sentences above the tables.
pub fn intro(options: &Options, record: &Value) -> String {
    let writer = match options.writer_core() {
        Some(core) => format!(
            "writing: the same lookups of hits while a thread on core {core} replaces values without \
             a break, by the clock on the wall; slower: than in turns without. "
        ),
        None => String::new(),
    };
    format!(
        "Entries of 48 and 16 bits; bursts of {}, lists of {LIST}; nanoseconds a key, median [range] of {} \
         rounds, in which the peers took turns, one process each, on core {}. × is the time in that of \
         Overbank's `{}` in the same round, ×l in that of its `{}`, for which no peer has a call. {writer}built: million insertions a second, one thread, the table made in it.\n\
         {}, {:.2} GHz TSC, {}.\n`{}`",
        options.burst,
        options.rounds,
        options.core(),
        OVERBANK_WAYS[0],
        OVERBANK_WAYS[LIST_WAY],
        record["cpu"].as_str().unwrap_or_default(),
        record["tsc_ghz"].as_f64().unwrap_or_default(),
        record["date"].as_str().unwrap_or_default(),
        record["command"].as_str().unwrap_or_default(),
    )
}

/// Returns a size as a table.
pub fn block(cell: &Cell) -> Block {
    let header = [
        "peer",
        "hit ns",
        "×",
        "×l",
        "miss ns",
        "×",
        "×l",
        "writing ns",
        "slower",
        "changes M/s",
        "built M/s",
        "B/entry",
        "huge %",
        "note",
    ];
    let rows = rows(cell).map(|row| {
        let Entrant { peer, built, .. } = row.entrant;
        let table = row.way == 0 && peer.name != FLOOR;
        let if_table = |text: String| if table { text } else { String::new() };
        let name = if row.way == 0 { peer.name } else { "" };
        let (mut writing, mut slower, mut changes) = Default::default();
        if let Some(writer) = &row.writer {
            writing = writer.hit_ns.cell(1);
            slower = format!("{:+.0} %", 100.0 * (writer.slowdown.median - 1.0));
            changes = format!("{:.1}", writer.changes_per_s.median / 1e6);
            if writer.lost > 0 {
                slower += &format!(", {} lost", writer.lost);
            }
        }
        vec![
            format!("{name} {}", peer.ways[row.way]).trim().to_string(),
            row.hit_ns.cell(1),
            row.hit_ratios[0].cell(2),
            row.hit_ratios[LIST_WAY].cell(2),
            row.miss_ns.cell(1),
            row.miss_ratios[0].cell(2),
            row.miss_ratios[LIST_WAY].cell(2),
            writing,
            slower,
            changes,
            if_table(format!("{:.1}", cell.entries as f64 / built.seconds / 1e6)),
            if_table(format!("{:.2}", built.memory_bytes as f64 / cell.entries as f64)),
            if row.way == 0 { format!("{:.0}", 100.0 * built.huge_share) } else { String::new() },
            if_table(built.note.clone()),
        ]
    });
    let rows = rows.collect();
    let mut title = format!("{} million entries", cell.entries as f64 / 1e6);
    let best = |own_way| rte_hash(cell, own_way);
    if let (Some((hit, miss)), Some((hit_l, miss_l))) = (best(0), best(LIST_WAY)) {
        title += &format!("; rte_hash at its best: hits {hit:.2} × ({hit_l:.2} ×l)");
        title += &format!(", misses {miss:.2} × ({miss_l:.2} ×l)");
    }
    if cell.groups > 1 {
        title += &format!("; in {} groups, for memory", cell.groups);
    }
    for (peer, bytes) in &cell.left_out {
        title += &format!("; {peer} left out, it may need {} MiB", bytes >> 20);
    }
    Block { title, header: header.map(String::from).to_vec(), rows }
}

#[cfg(test)]
mod tests {
    use super::super::contestant::Built;
    use super::super::peer::{OVERBANK, find};
    use super::*;

    #[test]
    fn ratios_are_to_the_ways_of_the_same_round() {
        let round = |hit: &[f64], miss: &[f64]| Round { hit_ns: hit.into(), miss_ns: miss.into() };
        let own = [
            round(&[10.0, 7.0, 5.0], &[8.0, 5.0, 4.0]),
            round(&[20.0, 18.0, 16.0], &[10.0, 10.0, 10.0]),
        ];
        let other = [round(&[30.0, 20.0], &[24.0, 16.0]), round(&[60.0, 40.0], &[30.0, 20.0])];
        let entrant = |name, rounds: &[Round; 2]| Entrant {
            peer: find(name).unwrap(),
            group: 1,
            built: Built::default(),
            rounds: rounds.iter().cloned().zip(own.iter().cloned()).collect(),
            busy: Vec::new(),
        };
        let entrants = vec![entrant(OVERBANK, &own), entrant("rte_hash-lf", &other)];
        let cell = Cell { entries: 1000, groups: 1, entrants, left_out: Vec::new() };

        let record = record(&cell);
        let medians = |row: usize| {
            ["hit_ratio", "miss_ratio", "hit_ratio_list", "miss_ratio_list"]
                .map(|name| record["peers"][row][name]["median"].as_f64().unwrap())
        };
        assert_eq!(medians(0), [1.0, 1.0, 1.625, 1.5]);
        assert_eq!(medians(2), [0.65, 0.75, 1.0, 1.0]);
        assert_eq!(medians(3), [3.0, 3.0, 4.875, 4.5]);
        assert_eq!(record["rte_hash_best"], json!({"hit": 2.0, "miss": 2.0}));
        assert_eq!(record["rte_hash_best_list"], json!({"hit": 3.25, "miss": 3.0}));

        let claims = claims(&cell);
        assert_eq!(claims[0].measured, "3.25 (2.50 to 4.00)");
        assert!(claims.iter().all(|claim| claim.holds) && claims[1].claim.contains("misses"));

        let Block { title, header, rows } = block(&cell);
        assert!(title.ends_with("hits 2.00 × (3.25 ×l), misses 2.00 × (3.00 ×l)"), "{title}");
        assert_eq!(header[2..7], ["×", "×l", "miss ns", "×", "×l"]);
        assert!(rows.iter().all(|row| row.len() == header.len()));
        assert_eq!(rows[3][2..4], ["3.00 [3.00–3.00]", "4.88 [3.75–6.00]"]);
    }
}
