//! What the record and the tables of `fib` say.

use serde_json::{Value, json};

use super::{Cell, Entrant, Options};
use crate::fib::peer::FLOOR;
use crate::output::Block;
use crate::stats::Spread;

/// Figures of one way of a peer to look up.
struct Row<'a> {
    entrant: &'a Entrant,
    way: usize,
    hit_ns: Spread,
    miss_ns: Spread,
    /// Times Overbank's first way, in the same round.
    hit_ratio: Spread,
    miss_ratio: Spread,
    writer: Option<Writer>,
}

struct Writer {
    hit_ns: Spread,
    /// Times the same without writes.
    slowdown: Spread,
    changes_per_s: Spread,
    lost: u64,
}

fn rows(cell: &Cell) -> impl Iterator<Item = Row<'_>> {
    cell.entrants.iter().flat_map(|entrant| {
        (0..entrant.peer.ways.len()).map(move |way| {
            let rounds = || entrant.rounds.iter();
            let busy = || entrant.busy.iter();
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
                hit_ratio: Spread::of(rounds().map(|(r, own)| r.hit_ns[way] / own.hit_ns[0])),
                miss_ratio: Spread::of(rounds().map(|(r, own)| r.miss_ns[way] / own.miss_ns[0])),
                writer,
            }
        })
    })
}

/// The least times Overbank's that any way of rte_hash takes, for hits and for misses.
fn rte_hash(cell: &Cell) -> Option<(f64, f64)> {
    let best = |ratio: fn(&Row) -> f64| {
        rows(cell)
            .filter(|row| row.entrant.peer.name.starts_with("rte_hash"))
            .map(|row| ratio(&row))
            .min_by(f64::total_cmp)
    };
    Some((best(|row| row.hit_ratio.median)?, best(|row| row.miss_ratio.median)?))
}

/// A size in the JSON record.
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
                "hit_ratio": row.hit_ratio,
                "miss_ratio": row.miss_ratio,
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
    let left_out = cell.left_out.iter();
    json!({
        "entries": cell.entries,
        "groups": cell.groups,
        "peers": rows,
        "rte_hash_best": rte_hash(cell).map(|(hit, miss)| json!({"hit": hit, "miss": miss})),
        "left_out": left_out.map(|(peer, bytes)| json!({"peer": peer, "bytes": bytes})).collect::<Vec<_>>(),
    })
}

/// The sentences above the tables.
pub fn intro(options: &Options, record: &Value) -> String {
    let writer = match options.writer_core() {
        Some(core) => format!(
            "writing: the same lookups of hits while a thread on core {core} replaces values without \
             a break, by the clock on the wall; slower: than in turns without. "
        ),
        None => String::new(),
    };
    format!(
        "Entries of 48 and 16 bits; bursts of {}; nanoseconds a key, median [range] of {} rounds, in \
         which the peers took turns, one process each, on core {}. × is the time in Overbank's of the \
         same round. {writer}built: million insertions a second, one thread, the table made in it.\n\
         {}, {:.2} GHz TSC, {}.\n`{}`",
        options.burst,
        options.rounds,
        options.core(),
        record["cpu"].as_str().unwrap_or_default(),
        record["tsc_ghz"].as_f64().unwrap_or_default(),
        record["date"].as_str().unwrap_or_default(),
        record["command"].as_str().unwrap_or_default(),
    )
}

/// A size as a table.
pub fn block(cell: &Cell) -> Block {
    let header = [
        "peer",
        "hit ns",
        "×",
        "miss ns",
        "×",
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
            row.hit_ratio.cell(2),
            row.miss_ns.cell(1),
            row.miss_ratio.cell(2),
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
    if let Some((hit, miss)) = rte_hash(cell) {
        title += &format!("; rte_hash at its best: hits {hit:.2} ×, misses {miss:.2} ×");
    }
    if cell.groups > 1 {
        title += &format!("; in {} groups, for memory", cell.groups);
    }
    for (peer, bytes) in &cell.left_out {
        title += &format!("; {peer} left out, it may need {} MiB", bytes >> 20);
    }
    Block { title, header: header.map(String::from).to_vec(), rows }
}
